"""Programs and µGraphs over intervals of real numbers, on many draws of the inputs at once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret.buffers import Buffer, FloatArray, Index
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.node import Attr
from mirage_py.verify.intervals import interval_functions as functions
from mirage_py.verify.intervals.intervals import (
    UNIT,
    Interval,
    enclosed,
    exact,
    fits_exactly,
    mul,
    on_grid,
    rounded,
    sub,
    total,
)

_SHIFTS = 5


class IntervalMeaning:
    """A Meaning; see mirage_py.verify.intervals.intervals. The last axis of an array counts the
    draws.
    """

    def __init__(self, opaque_casts: Sequence[str] = ()) -> None:
        self._floats = FloatMeaning()
        self._opaque_casts = tuple(opaque_casts)

    def apply(self, op: str, attr: Attr, args: Sequence[Interval]) -> Interval:
        if isinstance(attr, DType) and str(attr) in self._opaque_casts:
            return functions.rounding(args[0], attr)
        return functions.apply(op, args)

    def power(self, x: Interval, exponent: float) -> Interval:
        return functions.power(x, exponent)

    def select(self, mask: Interval, x: Interval) -> Interval:
        """Where a mask of indices is 0 the result is 0, whatever x is: kernels select there."""
        return functions.choice(mask, x, exact(np.zeros((1,))))

    def shift(self, x: Interval, key: str) -> Interval:
        """A small number that is the same for every x: but where x is undefined, so is this."""
        value = float(crc32(key.encode()) % (2 * _SHIFTS + 1) - _SHIFTS) / 4
        return exact(np.where(x.undefined(), np.nan, value))

    def const(self, value: float) -> Interval:
        """The number that the decimal text means."""
        mid = np.full((1,), value)
        is_float = not isfinite(value) or Fraction(repr(value)) == Fraction(value)
        return exact(mid) if is_float else rounded(mid)

    def size(self, extent: int) -> Interval:
        return exact(np.full((1,), float(extent)))

    def index(self, values: NDArray[np.int64]) -> Interval:
        return exact(values.astype(np.float64)[..., None])

    def mask(self, truth: NDArray[np.bool_]) -> Interval:
        return exact(truth.astype(np.float64)[..., None])

    def sum(self, x: Interval, axes: Sequence[int]) -> Interval:
        with np.errstate(all="ignore"):
            return total(x, axes)

    def max(self, x: Interval, axes: Sequence[int]) -> Interval:
        over = tuple(axes)
        with np.errstate(all="ignore"):
            mid = x.mid.max(axis=over, keepdims=True)
            # What may be the largest: elsewhere a radius does not matter.
            least = np.where(np.isnan(x.mid), -np.inf, x.mid - x.rad).max(axis=over, keepdims=True)
            rivals = ~(x.mid + x.rad < least) | np.isinf(x.rad)
            rad = np.where(rivals, x.rad, 0.0).max(axis=over, keepdims=True)
        return Interval(np.asarray(mid), np.asarray(rad))

    def contract(self, a: Interval, b: Interval, axes: Sequence[int]) -> Interval:
        product = self._floats.contract
        with np.errstate(all="ignore"):
            mid = product(a.mid, b.mid, axes)
            if not np.isfinite(mid).all() or np.isinf(a.rad).any() or np.isinf(b.rad).any():
                return total(mul(a, b), axes)
            size_a, size_b = np.abs(a.mid), np.abs(b.mid)
            size = product(size_a, size_b, axes)
            rad = np.zeros_like(mid)
            if b.rad.any():
                rad = rad + product(size_a, b.rad, axes)
            if a.rad.any():
                rad = rad + product(a.rad, size_b + b.rad, axes)
            fine = on_grid(a.mid).all() and on_grid(b.mid).all()
            terms = max(1, np.broadcast(a.mid, b.mid).size // max(1, mid.size))
            computed = (terms + 2) * UNIT * size
            if fine:
                computed = np.where(fits_exactly(size), 0.0, computed)
            return enclosed(mid, rad + computed, (a, b))

    def rescale(self, old: Interval, new: Interval, degree: int) -> Interval:
        with np.errstate(all="ignore"):
            moved = mul(sub(old, new), exact(np.full((1,), float(degree))))
        return functions.apply("exp", [moved])

    def shape(self, x: Interval) -> tuple[int, ...]:
        return x.shape

    def reshape(self, x: Interval, shape: Sequence[int]) -> Interval:
        wanted = (*shape, x.mid.shape[-1])
        return Interval(x.mid.reshape(wanted), x.rad.reshape(wanted))

    def transpose(self, x: Interval, perm: Sequence[int]) -> Interval:
        order = (*perm, len(perm))
        return Interval(x.mid.transpose(order), x.rad.transpose(order))

    def stretch(self, x: Interval, shape: Sequence[int]) -> Interval:
        wanted = (*shape, x.mid.shape[-1])
        return Interval(np.broadcast_to(x.mid, wanted), np.broadcast_to(x.rad, wanted))

    def load(self, x: Interval, index: Index) -> Interval:
        return Interval(np.asarray(x.mid[index]), np.asarray(x.rad[index]))

    def integers(self, x: Interval) -> NDArray[np.int64]:
        return x.mid[..., 0].astype(np.int64)  # those of the first draw serve all

    def buffer(self, shape: Sequence[int]) -> Buffer[Interval]:
        return _IntervalBuffer(shape)


class _IntervalBuffer:
    """A tensor; that two writes of an element agree is for the finite fields to see."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._held: tuple[FloatArray, FloatArray] | None = None
        self._written = np.zeros(self._shape, dtype=np.bool_)

    def write(self, index: Index, value: Interval) -> None:
        draws = value.mid.shape[-1]
        if self._held is None or self._held[0].shape[-1] < draws:
            self._held = self._resized(draws)
        self._held[0][index] = value.mid
        self._held[1][index] = value.rad
        self._written[index] = True

    def missing(self) -> int:
        return int(self._written.size - self._written.sum())

    def read(self) -> Interval:
        mid, rad = self._held or self._resized(1)
        return Interval(mid, rad)

    def _resized(self, draws: int) -> tuple[FloatArray, FloatArray]:
        """As many draws as this; what was written for all of them alike is repeated."""
        shape = (*self._shape, draws)
        if self._held is None:
            return np.zeros(shape), np.zeros(shape)
        mid, rad = (np.broadcast_to(part, shape).copy() for part in self._held)
        return mid, rad
