"""Programs and µGraphs over exact values, on many draws of the inputs at once.

The order and the domains of functions are those of intervals; where these leave open whether two
numbers are the same, or whether one is 0, their residues tell (see
mirage_py.verify.intervals.exact_values).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.field import residues as modular
from mirage_py.ugraph.field.contraction import contract
from mirage_py.ugraph.field.values import Residues
from mirage_py.ugraph.interpret.buffers import Buffer, Index
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.node import Attr
from mirage_py.verify.evaluate.trial import COMPARISONS
from mirage_py.verify.intervals.exact_values import (
    PRIME,
    Exact,
    chosen,
    inverse,
    of_decimal,
    of_floats,
    other_residue,
    random_residue,
    rational_residue,
    root_residue,
)
from mirage_py.verify.intervals.interval_meaning import IntervalMeaning
from mirage_py.verify.intervals.intervals import Interval


def algebraic_root(x: Exact) -> Exact:
    """The square root, also where it is no decimal: then one of the two of the residue, if it is a
    square. Which one makes no difference: no equation tells them apart.
    """
    found = ExactMeaning().apply("sqrt", None, [x])
    root = modular.power(x.residue, (PRIME + 1) // 4, PRIME)
    is_root = modular.multiply(root, root, PRIME) == x.residue
    is_decimal = modular.multiply(found.residue, found.residue, PRIME) == x.residue
    return Exact(found.interval, np.where(is_root & ~is_decimal, root, found.residue))


class ExactMeaning:
    """A Meaning; the order and the domains are those of IntervalMeaning."""

    # The same operands give the same value each time.
    is_repeatable = True
    # And each element by itself.
    is_pointwise = True

    def __init__(self, opaque_casts: Sequence[str] = ()) -> None:
        self._intervals = IntervalMeaning(opaque_casts)
        self._opaque_casts = tuple(opaque_casts)

    def apply(self, op: str, attr: Attr, args: Sequence[Exact]) -> Exact:
        if op in COMPARISONS:
            args = _with_ties(*args)
        found = self._intervals.apply(op, attr, [a.interval for a in args])
        if op == "cast" and isinstance(attr, DType) and str(attr) in self._opaque_casts:
            return _settled(found, random_residue(f"cast {attr}", args), rational=False)
        residue = rational_residue(op, [a.residue for a in args])
        if residue is not None:
            return _settled(found, residue, rational=True)
        return _settled(found, other_residue(op, args), rational=False)

    def power(self, x: Exact, exponent: float) -> Exact:
        found = self._intervals.power(x.interval, exponent)
        if not float(exponent).is_integer():
            root = root_residue(x) if exponent == 0.5 else random_residue(f"power {exponent}", [x])
            return _settled(found, root, rational=False)
        raised = modular.power(x.residue, int(abs(exponent)), PRIME)
        return _settled(found, inverse(raised) if exponent < 0 else raised, rational=True)

    def select(self, mask: Exact, x: Exact) -> Exact:
        found = self._intervals.select(mask.interval, x.interval)
        return _settled(found, chosen([mask, x, self.const(0.0)]), rational=False)

    def shift(self, x: Exact, key: str) -> Exact:
        return _known(self._intervals.shift(x.interval, key))

    def const(self, value: float) -> Exact:
        found = self._intervals.const(value)
        return Exact(found, np.full(found.mid.shape, of_decimal(value), dtype=np.int64))

    def size(self, extent: int) -> Exact:
        return _known(self._intervals.size(extent))

    def index(self, values: NDArray[np.int64]) -> Exact:
        return _known(self._intervals.index(values))

    def mask(self, truth: NDArray[np.bool_]) -> Exact:
        return _known(self._intervals.mask(truth))

    def sum(self, x: Exact, axes: Sequence[int]) -> Exact:
        found = self._intervals.sum(x.interval, axes)
        return _settled(found, modular.total(x.residue, tuple(axes), True, PRIME), rational=True)

    def max(self, x: Exact, axes: Sequence[int]) -> Exact:
        """The residue of a largest midpoint, where all that may be largest has the same."""
        found = self._intervals.max(x.interval, axes)
        with np.errstate(all="ignore"):
            rivals = x.interval.mid + x.interval.rad >= found.mid - found.rad
        high = np.where(rivals, x.residue, -1).max(axis=tuple(axes), keepdims=True)
        low = np.where(rivals, x.residue, PRIME).min(axis=tuple(axes), keepdims=True)
        same = Exact(found, np.maximum(high, 0))
        return _settled(
            found, np.where(high == low, high, random_residue("max", [same])), rational=False
        )

    def contract(self, a: Exact, b: Exact, axes: Sequence[int]) -> Exact:
        found = self._intervals.contract(a.interval, b.interval, axes)
        residue = contract(a.residue, b.residue, tuple(axes), True, PRIME)
        return _settled(found, residue, rational=True)

    def rescale(self, old: Exact, new: Exact, degree: int) -> Exact:
        found = self._intervals.rescale(old.interval, new.interval, degree)
        return _settled(found, random_residue(f"rescale {degree}", [old, new]), rational=False)

    def shape(self, x: Exact) -> tuple[int, ...]:
        return x.interval.shape

    def reshape(self, x: Exact, shape: Sequence[int]) -> Exact:
        residue = x.residue.reshape((*shape, x.residue.shape[-1]))
        return Exact(self._intervals.reshape(x.interval, shape), residue)

    def transpose(self, x: Exact, perm: Sequence[int]) -> Exact:
        residue = x.residue.transpose((*perm, len(perm)))
        return Exact(self._intervals.transpose(x.interval, perm), residue)

    def stretch(self, x: Exact, shape: Sequence[int]) -> Exact:
        residue = np.broadcast_to(x.residue, (*shape, x.residue.shape[-1]))
        return Exact(self._intervals.stretch(x.interval, shape), residue)

    def load(self, x: Exact, index: Index) -> Exact:
        return x[index]

    def integers(self, x: Exact) -> NDArray[np.int64]:
        return self._intervals.integers(x.interval)

    def buffer(self, shape: Sequence[int]) -> Buffer[Exact]:
        return _ExactBuffer(self._intervals.buffer(shape), shape)


class _ExactBuffer:
    def __init__(self, intervals: Buffer[Interval], shape: Sequence[int]) -> None:
        self._intervals = intervals
        self._residue = np.zeros((*shape, 1), dtype=np.int64)

    def write(self, index: Index, value: Exact) -> None:
        self._intervals.write(index, value.interval)
        draws = value.residue.shape[-1]
        if self._residue.shape[-1] < draws:
            self._residue = np.repeat(self._residue, draws, axis=-1)
        self._residue[index] = value.residue

    def missing(self) -> int:
        return self._intervals.missing()

    def read(self) -> Exact:
        found = self._intervals.read()
        return Exact(found, np.broadcast_to(self._residue, found.mid.shape))


def _known(found: Interval) -> Exact:
    return Exact(found, of_floats(found.mid))


def _settled(found: Interval, residue: Residues, *, rational: bool) -> Exact:
    """With residue 0 and an interval around 0 it is 0. What no rational function gave, but is known
    exactly, has the residue of its number.
    """
    if residue.shape != found.mid.shape:
        residue = np.broadcast_to(residue, found.mid.shape)
    if not rational:
        residue = np.where(found.rad == 0, of_floats(found.mid), residue)
    with np.errstate(all="ignore"):
        zero = (residue == 0) & (np.abs(found.mid) <= found.rad) & np.isfinite(found.rad)
    zero = zero & (found.rad > 0)
    if zero.any():
        found = Interval(np.where(zero, 0.0, found.mid), np.where(zero, 0.0, found.rad))
    return Exact(found, residue)


def _with_ties(a: Exact, b: Exact) -> tuple[Exact, Exact]:
    """Both operands of a comparison, with 0 for the two where they are one number."""
    with np.errstate(all="ignore"):
        apart = np.abs(a.interval.mid - b.interval.mid)
        tie = (a.residue == b.residue) & (apart <= a.interval.rad + b.interval.rad)
    tie = tie & np.isfinite(a.interval.rad) & np.isfinite(b.interval.rad)
    if not tie.any():
        return a, b
    zeroed = (
        Interval(np.where(tie, 0.0, x.interval.mid), np.where(tie, 0.0, x.interval.rad))
        for x in (a, b)
    )
    left, right = zeroed
    return Exact(left, a.residue), Exact(right, b.residue)
