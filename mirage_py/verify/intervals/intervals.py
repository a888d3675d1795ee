"""Real numbers known to lie within a radius of a midpoint, or known to be undefined.

Midpoint-radius interval arithmetic in float64, for a test that may refuse only what is wrong over
the real numbers: what rounding leaves open stays open. Three kinds of elements:

    midpoint a number, radius finite    the real value lies in mid - rad .. mid + rad
    midpoint a number, radius infinite  nothing is known of it, not even whether it has a value
    midpoint NaN                        surely undefined: a division by zero, the log of -1

Radius 0 is a value known exactly. Sums and products of small numbers with few bits are exact, and
their rounding errors are computed and not estimated, so that ties and zero divisors that structured
inputs make are seen as such.

Source: S. M. Rump, Fast and parallel interval arithmetic, BIT 1999; T. J. Dekker, A floating-point
technique for extending the available precision, 1971 (exact errors of sums and products).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret.buffers import FloatArray

UNIT = 2.0**-53
_SPLITTER = 2.0**27 + 1.0
# Below this, products lose bits that their computed error does not show.
_TINY = 1e-280
_LOST = 1e-300
# Multiples of 2^-8, whose products are multiples of 2^-16 and sum up exactly below 2^37.
_GRID = 256.0
_EXACT_TOTAL = 2.0**36


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """A tensor of them; the last axis of both arrays counts draws, which have nothing in common."""

    mid: FloatArray
    rad: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        """Without the axis of the draws."""
        return self.mid.shape[:-1]

    def known(self) -> NDArray[np.bool_]:
        """Where the value is known up to a radius."""
        return np.isfinite(self.rad) & ~np.isnan(self.mid)

    def undefined(self) -> NDArray[np.bool_]:
        """Where there surely is no value."""
        return np.isnan(self.mid)


def enclosed(mid: FloatArray, rad: FloatArray, operands: Sequence[Interval]) -> Interval:
    """The interval of a computed result: what overflowed, or has no radius, is unknown.

    Infinite operands stand for the infinities that a program writes down, and give others.
    """
    undefined = np.isnan(mid)
    overflow = np.isinf(mid)
    if overflow.any():
        for operand in operands:
            overflow = overflow & ~np.isinf(operand.mid)
        mid = np.where(overflow, 0.0, mid)
    rad = np.where(overflow | np.isnan(rad), np.inf, rad)
    return Interval(mid, np.where(undefined, 0.0, rad))


def exact(mid: FloatArray) -> Interval:
    """Numbers that are known."""
    return Interval(mid, np.zeros_like(mid))


def rounded(mid: FloatArray) -> Interval:
    """Numbers that float64 has only rounded."""
    return Interval(mid, UNIT * np.abs(mid))


def add(a: Interval, b: Interval) -> Interval:
    """The sum. Equal infinities of other signs have none."""
    mid = np.add(a.mid, b.mid)
    other = mid - a.mid
    error = np.abs((a.mid - (mid - other)) + (b.mid - other))
    return enclosed(mid, a.rad + b.rad + np.where(np.isinf(mid), 0.0, error), (a, b))


def neg(a: Interval) -> Interval:
    """The opposite, exactly."""
    return Interval(-a.mid, a.rad)


def sub(a: Interval, b: Interval) -> Interval:
    """The difference: of a value and itself 0, whatever its radius."""
    found = add(a, neg(b))
    return _known_to_be(0.0, found, _numbers(a)) if _is_same(a, b) else found


def mul(a: Interval, b: Interval) -> Interval:
    """The product; of 0 and what may be undefined nothing is known."""
    mid = np.multiply(a.mid, b.mid)
    carried = _carried(b.rad, a.mid) + _carried(a.rad, b.mid) + _carried(a.rad, b.rad)
    error = np.where(np.isinf(mid), 0.0, _product_error(a.mid, b.mid, mid))
    return enclosed(mid, carried + error, (a, b))


def div(a: Interval, b: Interval) -> Interval:
    """The quotient: undefined where the divisor is 0, unknown where it may be; of a value and
    itself 1.
    """
    zero = (b.mid == 0) & (b.rad == 0)
    least = np.abs(b.mid) - b.rad
    mid = np.divide(a.mid, b.mid)
    remainder = np.abs(np.multiply(mid, b.mid) - a.mid) + _product_error(mid, b.mid, mid * b.mid)
    infinite = np.isinf(a.mid) | np.isinf(b.mid)
    computed = np.where((remainder == 0) | infinite, 0.0, UNIT * np.abs(mid) + _LOST)
    rad = np.where(least > 0, (a.rad + _carried(b.rad, mid)) / least + computed, np.inf)
    unknown = ~zero & ~(least > 0) & ~np.isnan(a.mid) & ~np.isnan(b.mid)
    found = enclosed(np.where(unknown, 0.0, np.where(zero, np.nan, mid)), rad, (a, b))
    found = Interval(found.mid, np.where(unknown, np.inf, found.rad))
    return _known_to_be(1.0, found, _numbers(a) & (least > 0)) if _is_same(a, b) else found


def total(x: Interval, axes: Sequence[int]) -> Interval:
    """The sum over axes, which stay with extent 1."""
    over = tuple(axes)
    mid = np.asarray(x.mid.sum(axis=over, keepdims=True))
    size = np.abs(x.mid).sum(axis=over, keepdims=True)
    terms = x.mid.size // max(mid.size, 1)
    fine = on_grid(x.mid).all(axis=over, keepdims=True) & (size < _EXACT_TOTAL)
    error = np.where(fine | np.isinf(mid), 0.0, terms * UNIT * size)
    return enclosed(mid, x.rad.sum(axis=over, keepdims=True) + error, (_extent_of(x, over),))


def on_grid(values: FloatArray) -> NDArray[np.bool_]:
    """Which are multiples of a power of two that is not small."""
    return np.asarray(np.rint(values * _GRID) == values * _GRID)


def fits_exactly(size: FloatArray) -> NDArray[np.bool_]:
    """Whether sums of products on the grid, with these sums of magnitudes, are exact."""
    return np.asarray(size < _EXACT_TOTAL)


def order(a: Interval, b: Interval) -> tuple[NDArray[np.bool_], NDArray[np.bool_], FloatArray]:
    """Where a > b, where a = b, and the radius: infinite where neither is known.

    Two values that are rounded once each and to the same number count as equal: 0.1 is 0.1, and two
    different quotients of small numbers are further apart. A value is equal to itself.
    """
    apart = np.abs(a.mid - b.mid) > (a.rad + b.rad) * (1 + 4 * UNIT)
    once = UNIT * (1 + 4 * UNIT)
    equal = (a.mid == b.mid) & (a.rad <= once * np.abs(a.mid)) & (b.rad <= once * np.abs(b.mid))
    equal = equal | (_numbers(a) & _is_same(a, b))
    known = (apart | equal) & np.isfinite(a.rad) & np.isfinite(b.rad)
    return np.asarray(a.mid > b.mid), np.asarray(equal), np.where(known, 0.0, np.inf)


def _is_same(a: Interval, b: Interval) -> bool:
    """Whether both are one value, and not only two with the same numbers."""
    return a is b or (_memory(a.mid) == _memory(b.mid) and _memory(a.rad) == _memory(b.rad))


def _memory(part: FloatArray) -> tuple[object, ...]:
    """Where it lies; how far apart the elements of an axis of one are does not matter."""
    steps = [s for s, n in zip(part.strides, part.shape, strict=True) if n > 1]
    return part.ctypes.data, part.shape, *steps


def _numbers(a: Interval) -> NDArray[np.bool_]:
    return a.known() & np.isfinite(a.mid)


def _known_to_be(value: float, found: Interval, where: NDArray[np.bool_]) -> Interval:
    return Interval(np.where(where, value, found.mid), np.where(where, 0.0, found.rad))


def _carried(rad: FloatArray, factor: FloatArray) -> FloatArray:
    """A radius times a factor: 0 times any radius is 0, also where it is infinite."""
    return np.where(rad == 0, 0.0, rad * np.abs(factor))


def _extent_of(x: Interval, over: tuple[int, ...]) -> Interval:
    """An infinity along the axes wherever there is one, for ``enclosed``."""
    has = np.isinf(x.mid).any(axis=over, keepdims=True)
    return Interval(np.where(has, np.inf, 0.0), np.zeros(has.shape))


def _product_error(a: FloatArray, b: FloatArray, product: FloatArray) -> FloatArray:
    """What rounding took from a * b, exactly (or a bound of it)."""
    a_high, b_high = _high_half(a), _high_half(b)
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    small = (np.abs(product) < _TINY) & (a != 0) & (b != 0)
    return np.abs(error) + np.where(small, _LOST, 0.0)


def _high_half(a: FloatArray) -> FloatArray:
    scaled = _SPLITTER * a
    return np.asarray(scaled - (scaled - a))
