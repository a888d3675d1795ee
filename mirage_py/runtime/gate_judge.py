"""The float gate on a device: a right result is recognised where it lies.

Large outputs are slow to compare on the host, and most candidates are right. What does not pass
here is left to the host, which says why.
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
from mirage_py.verify.float_case import FloatEvidence, OutputCase
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
        """The evidence if every output is as the reference allows; None if one is not."""
        found = []
        for case, output in zip(self._cases, outputs, strict=True):
            error = _error(case, output)
            if error is None:
                return None
            found.append(case.case.evidence(error, case.eager_error, ""))
        return worst_of(self._program, found, with_eager=self._with_eager)


def _error(on: _OnDevice, output: torch.Tensor) -> float | None:
    """The relative error; None where an element is not as it must be."""
    import torch

    if output.shape != on.expected.shape:
        return None
    values = output.double()
    finite = torch.isfinite(values)
    distance = torch.where(finite, (values - on.expected).abs(), torch.inf)
    tensor = on.case.tensor
    is_wrong = on.compared & (distance > on.allowed)
    is_wrong |= on.overflows & finite & (values.abs() < tensor.dtype.max_finite)
    if bool(is_wrong.any()):
        return None
    counted = (distance - underflow_step(tensor.dtype)).clamp(min=0.0)
    norm = float(torch.linalg.vector_norm(torch.where(on.compared, counted, 0.0)))
    if norm == 0.0:
        return 0.0
    return norm / on.case.scale if on.case.scale else float("inf")
