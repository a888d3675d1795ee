"""The float gate on a device: results are judged where they lie.

Large outputs are slow to bring to the host and to compare there. What is found is what
``OutputCase.judge`` finds; only outputs of another shape are left to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.buffers import FloatArray
from mirage_py.ugraph.program import Program
from mirage_py.verify.element_types import underflow_step
from mirage_py.verify.float_case import FloatEvidence, OutputCase, Place
from mirage_py.verify.float_gate import worst_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _OnDevice:
    """A case with its arrays on the device; the tensors are float64 and bool."""

    case: OutputCase
    expected: torch.Tensor
    allowed: torch.Tensor
    compared: torch.Tensor
    overflows: torch.Tensor
    eager_error: float | None


class DeviceJudge:
    """The reference of one input set on a device."""

    def __init__(
        self,
        program: Program,
        cases: Sequence[OutputCase],
        eager: Mapping[str, FloatArray] | None,
        device: torch.device,
    ) -> None:
        import torch

        def there(array: NDArray[Any]) -> torch.Tensor:
            # Of an output without axes NumPy makes a number.
            return torch.from_numpy(np.asarray(array)).to(device)

        self._program = program
        self._with_eager = eager is not None
        self._cases = [
            _OnDevice(
                case,
                there(case.expected),
                there(case.allowed),
                there(case.compared),
                there(case.overflows),
                None if eager is None else case.error(eager[case.name]),
            )
            for case in cases
        ]

    def evidence(self, outputs: Sequence[torch.Tensor]) -> FloatEvidence | None:
        """What the outputs are found to be; None if the shape of one is not the reference's."""
        found = []
        for case, output in zip(self._cases, outputs, strict=True):
            if output.shape != case.expected.shape:
                return None
            error, fault = _finding(case, output)
            found.append(case.case.evidence(error, case.eager_error, fault))
        return worst_of(self._program, found, with_eager=self._with_eager)


def _finding(on: _OnDevice, output: torch.Tensor) -> tuple[float, str]:
    """The relative error, and what is wrong with the first element that is not as it must be."""
    import torch

    values = output.double()
    finite = torch.isfinite(values)
    distance = torch.where(finite, (values - on.expected).abs(), torch.inf)
    tensor = on.case.tensor
    far = on.compared & (distance > on.allowed)
    wrong = on.overflows & finite & (values.abs() < tensor.dtype.max_finite)
    fault = ""
    if bool((far | wrong).any()):
        lost = far & ~finite
        if bool(lost.any()):
            fault = on.case.not_finite(*_first(lost, values))
        elif bool(wrong.any()):
            fault = on.case.finite(*_first(wrong, values))
        else:
            fault = on.case.far(*_first(far, values), int(far.sum()))
    counted = (distance - underflow_step(tensor.dtype)).clamp(min=0.0)
    norm = float(torch.linalg.vector_norm(torch.where(on.compared, counted, 0.0)))
    if norm == 0.0:
        return 0.0, fault
    return norm / on.case.scale if on.case.scale else float("inf"), fault


def _first(which: torch.Tensor, values: torch.Tensor) -> tuple[Place, float]:
    """The first element where it is true."""
    number = int(which.reshape(-1).nonzero()[0])
    place = tuple(int(i) for i in np.unravel_index(number, tuple(which.shape)))
    return place, float(values[place])
