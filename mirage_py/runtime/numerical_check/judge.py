"""The numerical check on a device: results are compared where they lie.

Large outputs are slow to bring to the host and to compare there. ``DeviceCase`` finds what
``OutputCase`` finds, by the same rules; only outputs of another shape are left to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.reasons import Reason
from mirage_py.runtime.numerical_check.input_store import InputStore, to_arrays
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.element_types import underflow_step
from mirage_py.verify.numerical_check.float_case import SPREAD, Case, Element, FloatEvidence
from mirage_py.verify.numerical_check.numerical_check import Reference, tolerance, worst_of

if TYPE_CHECKING:
    import torch


class DeviceCase(Case):
    """A case in torch: ``OutputCase`` line by line, on ``device``."""

    def __init__(
        self,
        tensor: Tensor,
        expected: FloatArray,
        errors: FloatArray,
        tolerance: float,
        device: torch.device,
    ) -> None:
        import torch

        self.tensor = tensor
        self.expected = there(expected, device).double()
        self._step = underflow_step(tensor.dtype)
        size = self.expected.abs()
        limit = tensor.dtype.max_finite
        spread = SPREAD * there(errors, device).double()
        self.allowed = tolerance * size + spread + self._step
        known = ~(torch.isnan(self.expected) & torch.isposinf(spread))
        self.overflows = known & ~(size - self.allowed <= limit)
        self.compared = known & (size + self.allowed <= limit)
        sizes = torch.where(self.compared, size, 0.0)
        rows = sizes.mean(dim=-1, keepdim=True) if sizes.ndim else sizes
        rounding = self.allowed - self._step
        self.telling = self.compared & (rounding <= torch.maximum(size, rows))
        self.nonfinite, self.checked = int(self.overflows.sum()), int(self.compared.sum())
        self.known, self.size = int(known.sum()), size.numel()
        self.said = int(self.telling.sum())
        self.normed = self.telling if self.says_much else self.compared
        self.scale = self._norm(self.expected)
        self.bound = self._relative(self.allowed)

    def finding(self, output: torch.Tensor) -> tuple[float, float, Reason | None]:
        """The relative error of an output, the largest share of what is allowed, and what is wrong
        with the first element that is not as it must be.
        """
        import torch

        values = output.double()
        finite = torch.isfinite(values)
        distance = torch.where(finite, (values - self.expected).abs(), torch.inf)
        far = self.compared & (distance > self.allowed)
        wrong = self.overflows & finite & (values.abs() < self.tensor.dtype.max_finite)
        fault = None
        if bool((far | wrong).any()):
            lost = far & ~finite
            if bool(lost.any()):
                fault = self.not_finite(self._first(lost, values))
            elif bool(wrong.any()):
                fault = self.finite(self._first(wrong, values))
            else:
                fault = self.far(self._first(far, values), int(far.sum()), far.numel())
        shares = torch.where(self.compared, distance / self.allowed, 0.0)
        excess = float(shares.max()) if shares.numel() else 0.0
        return self._relative(distance), excess, fault

    def _relative(self, distance: torch.Tensor) -> float:
        norm = self._norm((distance - self._step).clamp(min=0.0))
        if norm == 0.0:
            return 0.0
        return norm / self.scale if self.scale else inf

    def _norm(self, values: torch.Tensor) -> float:
        import torch

        return float(torch.linalg.vector_norm(torch.where(self.normed, values, 0.0)))

    def _first(self, which: torch.Tensor, values: torch.Tensor) -> Element:
        number = int(which.reshape(-1).nonzero()[0])
        place = tuple(int(i) for i in np.unravel_index(number, tuple(which.shape)))
        arrays = (values, self.expected, self.allowed)
        return Element(place, *(float(a[place]) for a in arrays))


class DeviceJudge:
    """The reference of one input set on a device, and what eager PyTorch gives if it ran."""

    def __init__(
        self,
        program: Program,
        reference: Reference,
        eager: Mapping[str, FloatArray] | None,
        device: torch.device,
    ) -> None:
        self._program = program
        self._with_eager = eager is not None
        allowed = tolerance(program)
        self._cases: list[tuple[DeviceCase, float | None]] = []
        for output in program.outputs:
            name = output.tensor.name
            case = DeviceCase(
                output.tensor, reference.outputs[name], reference.errors[name], allowed, device
            )
            of_eager = None if eager is None else case.finding(there(eager[name], device))[0]
            self._cases.append((case, of_eager))

    def evidence(self, outputs: Sequence[torch.Tensor]) -> FloatEvidence | None:
        """What the outputs are found to be; None if the shape of one is not the reference's."""
        found = []
        for (case, of_eager), output in zip(self._cases, outputs, strict=True):
            if output.shape != case.expected.shape:
                return None
            error, excess, fault = case.finding(output)
            found.append(case.evidence(error, excess, of_eager, fault))
        return worst_of(self._program, found, with_eager=self._with_eager)


def judge_there(store: InputStore, name: str, outputs: tuple[torch.Tensor, ...]) -> FloatEvidence:
    """Compare outputs with the reference of a set, and with eager's where it ran, on the device on
    which the outputs are. The reference stays there too.
    """
    judge = _judge(store.folder, store.program, name, outputs[0].device, store.has_eager(name))
    return judge.evidence(outputs) or store.judge(name, to_arrays(store.program, outputs))


def forget() -> None:
    """Give the memory of all references back."""
    _judge.cache_clear()


@lru_cache(maxsize=8)
def _judge(
    folder: Path, program: Program, name: str, device: torch.device, with_eager: bool
) -> DeviceJudge:
    store = InputStore(folder, program)
    eager = store.read_eager(name) if with_eager else None
    return DeviceJudge(program, store.read_reference(name), eager, device)


def there(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """An array on a device; of an output without axes NumPy makes a number."""
    import torch

    return torch.from_numpy(np.asarray(array)).to(device)
