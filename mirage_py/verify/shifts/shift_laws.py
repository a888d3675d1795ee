"""Field arithmetic that knows log(x exp(-m)) = log(x) - m for shifts m.

In a field log is a keyed random function, without laws, and so is the exp of what has an exp in it;
but a stabilised log-sum-exp is right by such laws. So shifts are kept apart: a value is ``kept -
by``, or ``kept * exp(-by)``, where ``by`` is a sum of multiples of shifts, element by element. Each
operator acts on both by a law of the real numbers that holds whatever the shifts are:

    exp(z - m) = exp(z) * exp(-m)       (x exp(-m)) * (y exp(-n)) = (x y) exp(-(m + n))
    log(x exp(-m)) = log(x) - m         x exp(-m) + y exp(-m) = (x + y) exp(-m)

Where none of them fits, the number itself is taken, in which the shifts are random. So a shift that
does not cancel makes a wrong result, as without laws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.field import FieldArray, FieldOps
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.interpret.buffers import Buffer, FieldBuffer, Index
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.evaluate.trial import OF_AN_EXPONENTIAL, keyed_operators

_POWERS = {
    "square": Fraction(2),
    "sqrt": Fraction(1, 2),
    "rsqrt": Fraction(-1, 2),
    "reciprocal_no_nan": Fraction(-1),
}


@dataclass(frozen=True, slots=True, eq=False)
class Shifted:
    """``kept - by``; or ``kept * exp(-by)`` if it is scaled. None is no shift.

    ``by`` has the rank of ``kept`` and broadcasts to its shape.
    """

    kept: FieldArray
    by: FieldArray | None = None
    is_scaled: bool = False


def needs_shift_laws(program: Program) -> bool:
    """Whether exponentials of the program may be shifted by laws that its field values lack."""
    keyed = keyed_operators(program)
    return any(op == "log" or op.endswith(OF_AN_EXPONENTIAL) for op in keyed)


def evaluate_shifted(
    ugraph: UGraph, inputs: Mapping[str, FieldArray], meaning: FieldMeaning
) -> dict[str, FieldArray]:
    """The outputs by name, with the laws of shifts where they may be needed."""
    if not needs_shift_laws(ugraph.program):
        return evaluate_ugraph(ugraph, inputs, meaning)
    laws = ShiftLaws(meaning)
    found = evaluate_ugraph(ugraph, {n: Shifted(x) for n, x in inputs.items()}, laws)
    return {name: laws.plain(x) for name, x in found.items()}


class ShiftLaws:
    """A Meaning over another one, which has the numbers."""

    def __init__(self, base: FieldMeaning) -> None:
        self.base = base
        self.ops: FieldOps = base.ops
        self.is_repeatable = base.is_repeatable

    def plain(self, x: Shifted) -> FieldArray:
        """The number itself."""
        if x.by is None:
            return x.kept
        if x.is_scaled:
            return self.ops.mul(x.kept, self.ops.exp(self.ops.neg(x.by)))
        return self.ops.sub(x.kept, x.by)

    def free(self, value: FieldArray) -> Shifted:
        """A value that shifts exponents and nothing else: 0 - (-value)."""
        return Shifted(self.zeros(value.shape), self.ops.neg(value))

    def apply(self, op: str, attr: Attr, args: Sequence[Shifted]) -> Shifted:
        found = None
        if any(a.by is not None for a in args):
            if op in ("add", "sub"):
                found = self._sum(op, args[0], args[1]) or self._alike(op, args)
            elif op in ("mul", "div"):
                found = self._product(op, args[0], args[1])
            elif op == "where" and args[0].by is None:
                found = self._alike(op, args)
            elif len(args) == 1:
                found = self._unary(op, attr, args[0])
        return found or Shifted(self.base.apply(op, attr, [self.plain(a) for a in args]))

    def _unary(self, op: str, attr: Attr, x: Shifted) -> Shifted | None:
        assert x.by is not None
        by, is_scaled = x.by, x.is_scaled
        if op == "cast" and self.ops.reading.is_opaque(str(attr)):
            return None
        if op == "neg" and not x.is_scaled:
            by = self.ops.neg(by)
        elif op in _POWERS and x.is_scaled:
            by = self._times(by, _POWERS[op])
        elif (op == "exp" and not x.is_scaled) or (op == "log" and x.is_scaled):
            is_scaled = op == "exp"
        elif op not in (("neg", "cast", "abs", "relu") if x.is_scaled else ("cast",)):
            return None
        return Shifted(self.base.apply(op, attr, [x.kept]), by, is_scaled)

    def _sum(self, op: str, x: Shifted, y: Shifted) -> Shifted | None:
        """(x - m) + (y - n) = (x + y) - (m + n)."""
        if x.is_scaled or y.is_scaled:
            return None
        kept = self.base.apply(op, None, [x.kept, y.kept])
        return Shifted(kept, self.base.apply(op, None, [self._by(x), self._by(y)]))

    def _product(self, op: str, x: Shifted, y: Shifted) -> Shifted | None:
        """(x exp(-m)) (y exp(-n)) = (x y) exp(-(m + n)), and (x - m) y = x y - m y."""
        is_scaled = all(v.by is None or v.is_scaled for v in (x, y))
        if op == "mul" and x.by is None and not is_scaled:
            x, y = y, x
        if is_scaled:
            by = self.base.apply("add" if op == "mul" else "sub", None, [self._by(x), self._by(y)])
        elif x.is_scaled or x.by is None or y.by is not None or y.kept.q is None:
            return None
        else:
            by = self.base.apply(op, None, [x.by, y.kept])
        return Shifted(self.base.apply(op, None, [x.kept, y.kept]), by, is_scaled)

    def _alike(self, op: str, args: Sequence[Shifted]) -> Shifted | None:
        """The sum, or the choice, of two values that are scaled alike, or of which one is 0."""
        x, y = args[-2:]
        if not all(v.by is None or v.is_scaled for v in (x, y)):
            return None
        if _is_zero(x.kept) or _is_zero(y.kept):
            by = self._by(y if _is_zero(x.kept) else x)
        elif self._equal(self._by(x), self._by(y)):
            by = self._by(x)
        else:
            return None
        return Shifted(self.base.apply(op, None, [a.kept for a in args]), by, True)

    def power(self, x: Shifted, exponent: float) -> Shifted:
        if x.by is None or not x.is_scaled:
            return Shifted(self.base.power(self.plain(x), exponent))
        by = self._times(x.by, Fraction(repr(exponent)))
        return Shifted(self.base.power(x.kept, exponent), by, True)

    def select(self, mask: Shifted, x: Shifted) -> Shifted:
        return self.apply("mul", None, [mask, x])

    def shift(self, x: Shifted, key: str) -> Shifted:
        return self.free(self.base.shift(x.kept, key))

    def const(self, value: float) -> Shifted:
        return Shifted(self.base.const(value))

    def size(self, extent: int) -> Shifted:
        return Shifted(self.base.size(extent))

    def index(self, values: NDArray[np.int64]) -> Shifted:
        return Shifted(self.base.index(values))

    def mask(self, truth: NDArray[np.bool_]) -> Shifted:
        return Shifted(self.base.mask(truth))

    def sum(self, x: Shifted, axes: Sequence[int]) -> Shifted:
        if x.by is None:
            return Shifted(self.base.sum(x.kept, axes))
        if not x.is_scaled:
            by = x.by.broadcast(x.kept.shape)
            return Shifted(self.base.sum(x.kept, axes), self.base.sum(by, axes))
        common = self._constant(x, axes)
        if common is None:
            return Shifted(self.base.sum(self.plain(x), axes))
        return Shifted(self.base.sum(x.kept, axes), common, True)

    def max(self, x: Shifted, axes: Sequence[int]) -> Shifted:
        return Shifted(self.base.max(self.plain(x), axes))

    def contract(self, a: Shifted, b: Shifted, axes: Sequence[int]) -> Shifted:
        if a.by is None and b.by is None:
            return Shifted(self.base.contract(a.kept, b.kept, axes))
        return self.sum(self.apply("mul", None, [a, b]), axes)

    def rescale(self, old: Shifted, new: Shifted, degree: int) -> Shifted:
        moved = self.apply("sub", None, [old, new])
        return self.apply(
            "exp", None, [self.apply("mul", None, [moved, self.const(float(degree))])]
        )

    def shape(self, x: Shifted) -> tuple[int, ...]:
        return x.kept.shape

    def reshape(self, x: Shifted, shape: Sequence[int]) -> Shifted:
        return self._moved(x, lambda part: self.base.reshape(part, shape))

    def transpose(self, x: Shifted, perm: Sequence[int]) -> Shifted:
        return self._moved(x, lambda part: self.base.transpose(part, perm))

    def stretch(self, x: Shifted, shape: Sequence[int]) -> Shifted:
        return self._moved(x, lambda part: self.base.stretch(part, shape))

    def load(self, x: Shifted, index: Index) -> Shifted:
        return self._moved(x, lambda part: self.base.load(part, index))

    def integers(self, x: Shifted) -> NDArray[np.int64]:
        return self.base.integers(x.kept)

    def buffer(self, shape: Sequence[int]) -> Buffer[Shifted]:
        return _ShiftedBuffer(self, shape)

    def _moved(self, x: Shifted, move: Callable[[FieldArray], FieldArray]) -> Shifted:
        by = None if x.by is None else move(x.by.broadcast(x.kept.shape))
        return Shifted(move(x.kept), by, x.is_scaled)

    def _constant(self, x: Shifted, axes: Sequence[int]) -> FieldArray | None:
        """The shift of a value, if it does not vary along the axes."""
        by = self._by(x)
        first = by[tuple(slice(0, 1) if n in axes else slice(None) for n in range(by.ndim))]
        return first if self._equal(first, by) else None

    def _equal(self, a: FieldArray, b: FieldArray) -> bool:
        shape = np.broadcast_shapes(a.shape, b.shape)
        return self.ops.equal(a.broadcast(shape), b.broadcast(shape))

    def _times(self, by: FieldArray, factor: Fraction) -> FieldArray:
        return self.ops.mul(by, self.ops.constant(factor))

    def _by(self, x: Shifted) -> FieldArray:
        return self.zeros((1,) * x.kept.ndim) if x.by is None else x.by

    def zeros(self, shape: Sequence[int]) -> FieldArray:
        """No shift."""
        return self.ops.constant(0).broadcast(shape)


class _ShiftedBuffer:
    """A tensor of shifted values, all scaled or none; what has no shift is either."""

    def __init__(self, laws: ShiftLaws, shape: Sequence[int]) -> None:
        self._laws = laws
        self._kept, self._by = FieldBuffer(shape), FieldBuffer(shape)
        self._is_scaled: bool | None = None

    def write(self, index: Index, value: Shifted) -> None:
        if value.by is not None and self._is_scaled is None:
            self._is_scaled = value.is_scaled
        if value.by is not None and self._is_scaled != value.is_scaled:
            value = Shifted(self._laws.plain(value))
        by = self._laws.zeros(value.kept.shape) if value.by is None else value.by
        self._kept.write(index, value.kept)
        self._by.write(index, by.broadcast(value.kept.shape))

    def missing(self) -> int:
        return self._kept.missing()

    def read(self) -> Shifted:
        if self._is_scaled is None:
            return Shifted(self._kept.read())
        return Shifted(self._kept.read(), self._by.read(), self._is_scaled)


def _is_zero(x: FieldArray) -> bool:
    return not x.p.any() and (x.q is None or not x.q.any())
