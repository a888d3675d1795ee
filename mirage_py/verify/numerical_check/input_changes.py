"""Changes that turn random numbers into an input set: a factor and a shift for each element.

Factors and shifts are broadcast to the tensor, so that a change of a large tensor takes no memory
and can be computed for a part of the tensor where that part is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.interpret.buffers import FloatArray, Index
from mirage_py.ugraph.interpret.frame import MAX_DIMS
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import F16, F32, F64, DType
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.operators import named
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.evaluate.first_stage import first_stage
from mirage_py.verify.evaluate.windows import first_window, least_cost
from mirage_py.verify.numerical_check.periodic_input import PeriodicInput
from mirage_py.verify.shifts.safe_exp import add_safe_shifts

_PROBED_ELEMENTS = 1 << 18
# Element operations of a part, beyond which it is not evaluated some twenty times.
_MOST_WORK = 2e8
_LARGEST_CONSTANT = 2.0**100
# What stands for minus infinity under a mask is no logit.
_LARGEST_LOGIT = 2.0**48
# Operators whose operand is a logit.
EXPONENTIALS = named(lambda o: o.is_logit)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """``values * factor + shift``, cut off at ``share`` of the largest finite value of the type."""

    factor: FloatArray
    shift: FloatArray
    share: float = 0.5

    @classmethod
    def of(cls, tensor: Tensor, factor: object, shift: object = 0.0, share: float = 0.5) -> Change:
        """The same for every element, or by axes that broadcast."""
        grown = [np.broadcast_to(np.asarray(x, np.float64), tensor.shape) for x in (factor, shift)]
        return cls(grown[0], grown[1], share)

    def made(self, values: FloatArray, dtype: DType, index: Index) -> FloatArray:
        """The values at ``index``, changed and rounded to their type."""
        return self._made(values, dtype, self.factor[index], self.shift[index])

    def of_input(self, base: PeriodicInput, dtype: DType) -> PeriodicInput:
        """An input of one kind, changed and rounded: a kind for each factor and shift."""
        factor, shift = (_compact(x) for x in (self.factor, self.shift))
        pairs, kind = np.unique(factor + 1j * shift, return_inverse=True)
        rows = [
            self._made(base.table[0], dtype, p.real, p.imag).astype(kept_as(dtype)) for p in pairs
        ]
        shape = np.broadcast_shapes(factor.shape, shift.shape)
        return PeriodicInput(base.shape, np.stack(rows), kind.astype(np.uint8).reshape(shape))

    def _made(
        self, values: FloatArray, dtype: DType, factor: FloatArray, shift: FloatArray
    ) -> FloatArray:
        limit = dtype.max_finite * self.share
        changed = np.asarray(values * factor + shift)
        return round_to(np.clip(changed, -limit, limit), dtype)


def kept_as(dtype: DType) -> type[np.floating[Any]]:
    """A type that holds the numbers of an input, and takes no more memory than it must."""
    return np.float16 if dtype == F16 else np.float64 if dtype == F64 else np.float32


def _compact(x: FloatArray) -> FloatArray:
    """Of extent 1 where it is the same along an axis, as broadcasting makes it."""
    return x[tuple(slice(0, None if stride else 1) for stride in x.strides)]


Changes = Mapping[str, Change]


class Probe:
    """Evaluates a part of the program's results under changes; ``base`` holds unrounded inputs.

    After ``deadline`` (of ``time.monotonic``) nothing is evaluated any more, and ``was_cut`` says
    that something would have been.
    """

    def __init__(
        self,
        program: Program,
        base: Mapping[str, PeriodicInput],
        deadline: float | None = None,
    ) -> None:
        self.was_cut = False
        self._deadline = deadline
        self._program = program
        self._base = base
        self._shapes = {n: np.broadcast_to(np.zeros(()), x.shape) for n, x in base.items()}
        safe = add_safe_shifts(program)
        # A part is enough: an element elsewhere that overflows is judged as an overflow.
        self._safe = first_stage(safe, _PROBED_ELEMENTS, _PROBED_ELEMENTS) or safe
        self._window = first_window(self._safe, _PROBED_ELEMENTS)
        self._part = first_stage(program, _PROBED_ELEMENTS, _PROBED_ELEMENTS) or program
        self._can_look = len(program.sizes) <= MAX_DIMS and all(
            least_cost(p)[0] <= _MOST_WORK for p in (self._part, self._safe)
        )

    def largest(self, levels: Sequence[float], changes: Callable[[float], Changes]) -> float:
        """The last of ascending levels at which everything fits; the first is taken to, and is all
        there is where the smallest part of the results is too much to evaluate. The last that is
        known to, where it is late.
        """
        fits, too_large = 0, len(levels) if self._can_look else 1
        while too_large - fits > 1 and not self._is_late():
            middle = (fits + too_large) // 2
            if self._fits(changes(levels[middle])):
                fits = middle
            else:
                too_large = middle
        return levels[fits]

    def logits(self, changes: Changes) -> float:
        """The largest magnitude of what an exponential is applied to; 0 where there is none, or
        where it cannot be known.
        """
        if not self._can_look or self._is_late():
            return 0.0
        meaning = self._meaning(changes)
        window = first_window(self._part, _PROBED_ELEMENTS)
        evaluate_at(self._part, self._shapes, meaning, window)
        return meaning.logits

    def _is_late(self) -> bool:
        self.was_cut |= self._deadline is not None and time.monotonic() > self._deadline
        return self.was_cut

    def _fits(self, changes: Changes) -> bool:
        """Whether results fit their types, and what is computed on the way fits float32."""
        meaning = self._meaning(changes)
        results = evaluate_at(self._safe, self._shapes, meaning, self._window)
        if not meaning.peak <= F32.max_finite / 4:
            return False
        return all(
            bool((np.abs(results[o.tensor.name].values) <= o.tensor.dtype.max_finite / 2).all())
            for o in self._safe.outputs
        )

    def _meaning(self, changes: Changes) -> _PeakMeaning:
        inputs = {
            id(self._shapes[t.name]): (self._base[t.name], t.dtype, changes.get(t.name))
            for t in self._program.inputs
        }
        return _PeakMeaning(inputs)


class _PeakMeaning(FloatMeaning):
    """Floats that remember the largest magnitude they reached.

    Inputs are changed as they are read: a window needs a small part of them.
    """

    def __init__(self, inputs: Mapping[int, tuple[PeriodicInput, DType, Change | None]]) -> None:
        self.peak = 0.0
        self.logits = 0.0
        # By the id of what stands for them: the interpreter passes on the same array objects.
        self._inputs = inputs

    def const(self, value: float) -> FloatArray:
        # What stands for minus infinity is no result that overflows.
        return super().const(min(max(value, -_LARGEST_CONSTANT), _LARGEST_CONSTANT))

    def load(self, x: FloatArray, index: Index) -> FloatArray:
        if (given := self._inputs.get(id(x))) is None:
            # A value that the program itself wrote to memory.
            return super().load(x, index)
        base, dtype, change = given
        part = base.read(index)
        if change is not None:
            return change.made(part, dtype, index)
        return round_to(part, dtype) if dtype.is_float else part

    def apply(self, op: str, attr: Attr, args: Sequence[FloatArray]) -> FloatArray:
        if op in EXPONENTIALS and args[0].size:
            logits = np.abs(args[0])
            real = logits[logits < _LARGEST_LOGIT]
            self.logits = max(self.logits, float(real.max(initial=0.0)))
        return self._seen(super().apply(op, attr, args))

    def sum(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._seen(super().sum(x, axes))

    def contract(self, a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._seen(super().contract(a, b, axes))

    def _seen(self, values: FloatArray) -> FloatArray:
        self.peak = float(np.fmax(self.peak, np.abs(values).max()))
        return values
