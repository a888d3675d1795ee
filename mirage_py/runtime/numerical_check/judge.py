"""The numerical check on a device: results are compared there.

Large outputs are slow to bring to the host and to compare there. ``DeviceCase`` finds what
``OutputCase`` finds, by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.runtime.numerical_check.device_reference import device_reference
from mirage_py.runtime.numerical_check.input_store import InputStore
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.element_types import underflow_step
from mirage_py.verify.numerical_check.float_case import (
    SPREAD,
    Case,
    EagerError,
    Element,
    Finding,
    FloatEvidence,
    wrong_shape,
)
from mirage_py.verify.numerical_check.input_sets import SET_NAMES
from mirage_py.verify.numerical_check.numerical_check import Reference, tolerance, worst_of
from mirage_py.verify.numerical_check.places import Places

if TYPE_CHECKING:
    import torch

# Elements that two tensors are compared at a time.
_AT_A_TIME = 1 << 24


class DeviceCase(Case):
    """A case in torch: ``OutputCase`` line by line, on ``device``."""

    def __init__(
        self,
        tensor: Tensor,
        expected: FloatArray,
        errors: FloatArray,
        tolerance: float,
        places: Places | None,
        device: torch.device,
    ) -> None:
        import torch

        self.tensor = tensor
        self.places = places
        self.shape = torch.Size(places.shape if places else expected.shape)
        self._flat = there(places.flat, device) if places else None
        self.expected = there(expected, device).double()
        self._step = underflow_step(tensor.dtype)
        size = self.expected.abs()
        limit = tensor.dtype.max_finite
        spread = SPREAD * there(errors, device).double()
        self.allowed = tolerance * size + spread + self._step
        unknown = torch.isnan(self.expected)
        if tensor.dtype.is_float:  # NaN is any integer
            unknown &= torch.isposinf(spread)
        known = ~unknown
        self.overflows = known & ~(size - self.allowed <= limit)
        self.compared = known & (size + self.allowed <= limit)
        sizes = torch.where(self.compared, size, 0.0)
        rows = self._row_means(sizes)
        rounding = self.allowed - self._step
        self.telling = self.compared & (rounding <= torch.maximum(size, rows))
        self.nonfinite, self.checked = int(self.overflows.sum()), int(self.compared.sum())
        self.known, self.size = int(known.sum()), self.shape.numel()
        self.said = int(self.telling.sum())
        self.normed = self.telling if self.says_much else self.compared
        self.scale = self._norm(self.expected)
        self.bound = self._relative(self.allowed)

    def finding(self, output: torch.Tensor) -> tuple[float, Finding]:
        """The relative error of an output, and what is found of its elements."""
        import torch

        taken = output if self._flat is None else output.reshape(-1)[self._flat]
        values = taken.double()
        finite = torch.isfinite(values)
        distance = torch.where(finite, (values - self.expected).abs(), torch.inf)
        far = self.compared & (distance > self.allowed)
        wrong = self.overflows & finite & (values.abs() < self.tensor.dtype.max_finite)
        fault, outside = None, 0.0
        if bool((far | wrong).any()):
            outside = int(far.sum()) / max(1, self.checked)
            lost = far & ~finite
            if bool(lost.any()):
                fault = self.not_finite(self._first(lost, values))
            elif bool(wrong.any()):
                fault = self.finite(self._first(wrong, values))
            else:
                fault = self.far(self._first(far, values), int(far.sum()), far.numel())
        excess = row_excess = self._excess(distance, self.allowed)
        if fault is not None:
            means = self._row_means(torch.where(self.compared, self.allowed, 0.0))
            row_excess = self._excess(distance, torch.maximum(self.allowed, means))
        return self._relative(distance), Finding(excess, row_excess, fault, outside)

    def _excess(self, distance: torch.Tensor, allowed: torch.Tensor) -> float:
        import torch

        shares = torch.where(self.compared, distance / allowed, 0.0)
        return float(shares.max()) if shares.numel() else 0.0

    def _row_means(self, sizes: torch.Tensor) -> torch.Tensor:
        import torch

        if self._flat is None:
            return sizes.mean(dim=-1, keepdim=True) if sizes.ndim else sizes
        rows = self._flat // self.shape[-1] if self.shape else self._flat
        _, number, count = torch.unique(rows, return_inverse=True, return_counts=True)
        total = torch.zeros_like(count, dtype=torch.float64).index_add_(0, number, sizes)
        means: torch.Tensor = (total / count)[number]
        return means

    def _relative(self, distance: torch.Tensor) -> float:
        norm = self._norm((distance - self._step).clamp(min=0.0))
        if norm == 0.0:
            return 0.0
        return norm / self.scale if self.scale else inf

    def _norm(self, values: torch.Tensor) -> float:
        import torch

        return float(torch.linalg.vector_norm(torch.where(self.normed, values, 0.0)))

    def _first(self, which: torch.Tensor, values: torch.Tensor) -> Element:
        numbers = which.reshape(-1).nonzero()[:, 0]
        number = int(numbers[0 if self._flat is None else self._flat[numbers].argmin()])
        found = (float(a.reshape(-1)[number]) for a in (values, self.expected, self.allowed))
        return Element(self.place(number, tuple(which.shape)), *found)


class DeviceJudge:
    """The reference of one input set on a device."""

    def __init__(self, program: Program, reference: Reference, device: torch.device) -> None:
        self._program = program
        allowed = tolerance(program)
        self._cases = [
            DeviceCase(
                o.tensor,
                reference.outputs[o.tensor.name],
                reference.errors[o.tensor.name],
                allowed,
                reference.places.get(o.tensor.name),
                device,
            )
            for o in program.outputs
        ]

    def of_eager(self, outputs: Sequence[torch.Tensor]) -> list[EagerError]:
        """How far eager PyTorch's outputs are off."""
        pairs = zip(self._cases, outputs, strict=True)
        return [EagerError.of(*case.finding(output)) for case, output in pairs]

    def evidence(
        self, outputs: Sequence[torch.Tensor], eager: Sequence[EagerError] | None
    ) -> FloatEvidence:
        """What the outputs are found to be, beside the ``eager`` errors of PyTorch if it ran."""
        found = []
        for number, (case, output) in enumerate(zip(self._cases, outputs, strict=True)):
            if output.shape != case.shape:
                return wrong_shape(case.tensor, tuple(output.shape), tuple(case.shape))
            error, finding = case.finding(output)
            found.append(case.evidence(error, finding, eager[number] if eager else None))
        return worst_of(self._program, found, with_eager=eager is not None)


def judge_there(store: InputStore, name: str, outputs: tuple[torch.Tensor, ...]) -> FloatEvidence:
    """Compare outputs with the reference of a set, and with eager's where it ran, on the device on
    which the outputs are. The reference stays there too.
    """
    judge = _judge(store.folder, store.program, name, outputs[0].device)
    return judge.evidence(outputs, store.read_eager(name))


def add_eager(store: InputStore, name: str, outputs: tuple[torch.Tensor, ...]) -> None:
    """Keep how far from the reference of a set eager PyTorch is, which gave these outputs."""
    judge = _judge(store.folder, store.program, name, outputs[0].device)
    store.write_eager(name, judge.of_eager(outputs))


def agree(outputs: Any, others: Any, allowed: float) -> bool:
    """Whether two forms of a function give the same numbers, with a relative error of ``allowed``;
    the same NaN and infinities, too. Integers and truth values are equal.
    """
    import torch

    def same(a: torch.Tensor, b: torch.Tensor) -> bool:
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
        if not a.is_floating_point():
            return torch.equal(a, b)
        # What is compared in eight bits is rounded to them.
        return all(
            torch.allclose(x.float(), y.float(), rtol=allowed, atol=0.0, equal_nan=True)
            for x, y in in_pieces(a, b)
        )

    pairs = zip(*(o if isinstance(o, tuple) else (o,) for o in (outputs, others)), strict=True)
    return all(same(a, b) for a, b in pairs)


def in_pieces(
    one: torch.Tensor, other: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The elements of two tensors of one shape in order, so many at a time that what a comparison
    makes of them in wider types takes little memory beside them.
    """
    left, right = (t.contiguous().reshape(-1) for t in (one, other))
    for start in range(0, left.numel(), _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        yield left[part], right[part]


def forget() -> None:
    """Give the memory of all references back."""
    _judge.cache_clear()


@lru_cache(maxsize=8)
def _judge(folder: Path, program: Program, name: str, device: torch.device) -> DeviceJudge:
    store = InputStore(folder, program)
    # Who comes first computes it, for the processes that come later too.
    with store.being_written(name) as is_missing:
        if is_missing:
            inputs = store.inputs(name, device)
            store.write_reference(name, device_reference(program, inputs, SET_NAMES.index(name)))
    return DeviceJudge(program, store.read_reference(name), device)


def there(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """An array on a device; of an output without axes NumPy makes a number."""
    import torch

    return torch.from_numpy(np.asarray(array)).to(device)
