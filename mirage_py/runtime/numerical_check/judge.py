"""The numerical check on a device: results are compared there.

Large outputs are slow to bring to the host and to compare there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.runtime.numerical_check.device_reference import device_reference
from mirage_py.runtime.numerical_check.input_store import RANDOM, InputStore
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.float_case import EagerError, FloatEvidence
from mirage_py.verify.numerical_check.input_sets import SET_NAMES
from mirage_py.verify.numerical_check.numerical_check import Reference, cases, worst_of

if TYPE_CHECKING:
    import torch

# Elements that two tensors are compared at a time.
_AT_A_TIME = 1 << 24


class DeviceJudge:
    """The reference of one input set on a device."""

    def __init__(self, program: Program, reference: Reference, device: torch.device) -> None:
        self._program = program
        import torch

        def on_device(array: NDArray[Any]) -> torch.Tensor:
            tensor = there(array, device)
            return tensor.double() if tensor.is_floating_point() else tensor

        self._cases = cases(program, reference, library=torch, there=on_device)

    def of_eager(self, outputs: Sequence[torch.Tensor]) -> list[EagerError]:
        """How far eager PyTorch's outputs are off."""
        pairs = zip(self._cases, outputs, strict=True)
        return [case.of_eager(output) for case, output in pairs]

    def evidence(
        self, outputs: Sequence[torch.Tensor], eager: Sequence[EagerError] | None
    ) -> FloatEvidence:
        """What the outputs are found to be, beside the ``eager`` errors of PyTorch if it ran."""
        errors: Sequence[EagerError | None] = eager or [None] * len(self._cases)
        found = [c.evidence(o, e) for c, o, e in zip(self._cases, outputs, errors, strict=True)]
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


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """How far a tensor is from another, as a share of that, in the norm; infinite where one has
    another shape or type, or a number that is not finite.
    """
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return inf
    between, size = 0.0, 0.0
    for a, b in in_pieces(one, other):
        between += float((a.double() - b.double()).square().sum())
        size += float(b.double().square().sum())
    if not isfinite(between) or not isfinite(size):
        return inf
    return sqrt(between / size) if size else (inf if between else 0.0)


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
            seed, is_random = SET_NAMES.index(name), name == RANDOM
            found = device_reference(program, inputs, seed, is_random=is_random)
            store.write_reference(name, found)
    return DeviceJudge(program, store.read_reference(name), device)


def there(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """An array on a device; of an output without axes NumPy makes a number."""
    import torch

    return torch.from_numpy(np.asarray(array)).to(device)
