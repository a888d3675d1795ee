"""Elementwise operators over intervals of real numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.operators import Operator, all_operators, operator
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.intervals.intervals import (
    UNIT,
    Interval,
    add,
    div,
    enclosed,
    exact,
    mul,
    neg,
    order,
    sub,
)

Function = Callable[[FloatArray], FloatArray]

# Of float64, for the functions of NumPy and of the C library.
_ULPS = 8 * UNIT
_LEAST = 1e-300
_FEW_FACTORS = 100


def apply(op: str, args: Sequence[Interval]) -> Interval:
    """An elementwise operator. Raises UnsupportedError for one that has no meaning here."""
    with np.errstate(all="ignore"):
        if op in _COMPARISONS:
            return _compared(op, *args)
        meaning = _MEANINGS.get(op)
        if meaning is None:
            raise UnsupportedError(f"'{op}' is not an elementwise operator over real numbers")
        return meaning(*args)


def monotone(f: Function, a: Interval) -> Interval:
    """A function that only rises, or only falls, evaluated at both ends."""
    mid = f(a.mid)
    # One number further: a radius may be less than what the midpoint can be moved by.
    ends = np.nextafter(a.mid + a.rad, np.inf), np.nextafter(a.mid - a.rad, -np.inf)
    spread = np.maximum(*(np.abs(f(end) - mid) for end in ends))
    return _of_function(mid, np.where(a.rad == 0, 0.0, spread), a)


def rounding(a: Interval, to: DType) -> Interval:
    """The nearest value of a type: exact where all that the operand may be has the same."""
    with np.errstate(all="ignore"):
        low, high = round_to(a.mid - a.rad, to), round_to(a.mid + a.rad, to)
        mid = round_to(a.mid, to)
        spread = np.maximum(np.abs(high - mid), np.abs(low - mid))
        return enclosed(mid, np.where(a.rad == 0, 0.0, spread), (a,))


def power(a: Interval, exponent: float) -> Interval:
    """A constant power: of 0 undefined for negative exponents, of less for fractions as well."""
    with np.errstate(all="ignore"):
        if exponent < 0:
            return div(exact(np.ones((1,))), power(a, -exponent))
        if exponent == 0.5:
            return _sqrt(a)
        if not float(exponent).is_integer():
            found = monotone(lambda x: np.power(np.maximum(x, 0.0), exponent), a)
            return _inside(found, a, a.mid + a.rad < 0, a.mid - a.rad < 0)
        mid = np.power(a.mid, exponent)
        size = np.abs(a.mid)
        spread = np.where(
            a.rad == 0, 0.0, np.power(size + a.rad, exponent) - np.power(size, exponent)
        )
        found = _of_function(mid, spread, a)
        few = _has_few_bits(a.mid, exponent) & (a.rad == 0)
        return Interval(found.mid, np.where(few, 0.0, found.rad))


def _has_few_bits(a: FloatArray, exponent: FloatArray | float) -> NDArray[np.bool_]:
    """Where a power, not negative and whole, is a float: of a multiple of 2^-8, or of 1."""
    found = np.zeros(np.broadcast_shapes(a.shape, np.shape(exponent)), dtype=np.bool_)
    for scale in (1.0, 2.0**8):
        multiple = np.abs(a) * scale
        found |= (np.rint(multiple) == multiple) & (np.power(multiple, exponent) < 2.0**52)
    # Of 2^-8 as well, whose powers end somewhere.
    return found & (np.asarray(exponent) < _FEW_FACTORS)


def choice(condition: Interval, a: Interval, b: Interval) -> Interval:
    """``a`` where the condition is not 0, else ``b``; the other one may well be undefined."""
    shape = np.broadcast_shapes(condition.mid.shape, a.mid.shape, b.mid.shape)
    nonzero = np.abs(condition.mid) > condition.rad
    zero = (condition.mid == 0) & (condition.rad == 0)
    mid = np.where(nonzero, a.mid, b.mid)
    rad = np.where(nonzero, a.rad, b.rad)
    open_ = np.broadcast_to(~nonzero & ~zero & ~condition.undefined(), shape)
    mid = np.where(condition.undefined(), np.nan, np.where(open_, 0.0, mid))
    return Interval(mid, np.where(open_, np.inf, rad))


def larger(a: Interval, b: Interval) -> Interval:
    """The maximum."""
    over, _, unknown = order(a, b)
    either = np.maximum(a.rad, b.rad)
    rad = np.where(unknown == 0, np.where(over, a.rad, b.rad), either)
    rad = np.where(np.isinf(either), np.inf, rad)
    return Interval(np.maximum(a.mid, b.mid), rad)


def _compared(op: str, a: Interval, b: Interval) -> Interval:
    over, equal, unknown = order(a, b)
    truth = np.where(_COMPARISONS[op](over, equal), 1.0, 0.0)
    truth = np.where(np.isnan(a.mid) | np.isnan(b.mid), np.nan, truth)
    return Interval(truth, np.where(np.isnan(truth), 0.0, unknown))


def _of_function(mid: FloatArray, spread: FloatArray, a: Interval) -> Interval:
    """With what the function is computed with, and nothing known of what nothing is known of."""
    rad = 1.01 * spread + _ULPS * np.abs(mid) + _LEAST
    certain = (a.rad == 0) & (
        np.isinf(a.mid) | (a.mid == 0) & ((mid == 0) | (mid == 0.5) | (mid == 1))
    )
    rad = np.where(np.isinf(a.rad), np.inf, np.where(certain, 0.0, rad))
    return enclosed(np.where(np.isinf(a.rad), 0.0, mid), rad, (a,))


def _inside(
    found: Interval, a: Interval, outside: NDArray[np.bool_], maybe: NDArray[np.bool_]
) -> Interval:
    """Undefined where the operand surely lies outside of the domain, unknown where it may."""
    outside = outside & np.isfinite(a.rad)
    maybe = (maybe | np.isinf(a.rad)) & ~outside & ~a.undefined()
    mid = np.where(outside | a.undefined(), np.nan, np.where(maybe, 0.0, found.mid))
    return Interval(mid, np.where(np.isnan(mid), 0.0, np.where(maybe, np.inf, found.rad)))


def _sqrt(a: Interval) -> Interval:
    root = monotone(lambda x: np.sqrt(np.maximum(x, 0.0)), a)
    square = mul(exact(root.mid), exact(root.mid))
    is_root = (square.mid == a.mid) & (square.rad == 0) & (a.rad == 0)
    root = Interval(root.mid, np.where(is_root, 0.0, root.rad))
    return _inside(root, a, a.mid + a.rad < 0, a.mid - a.rad < 0)


def _of_positive(row: Operator) -> Callable[[Interval], Interval]:
    """A function that rises, of positive numbers, and is 0 at 1."""

    def meaning(a: Interval) -> Interval:
        found = monotone(lambda x: _floats(row, np.maximum(x, 5e-324)), a)
        found = Interval(found.mid, np.where((a.mid == 1) & (a.rad == 0), 0.0, found.rad))
        return _inside(found, a, a.mid + a.rad <= 0, a.mid - a.rad <= 0)

    return meaning


def _pow(a: Interval, b: Interval) -> Interval:
    """exp(b log(a)) where a is positive; powers of 0, whole powers of what is less or has few
    bits.
    """
    positive = apply("exp", [mul(b, _log(a))])
    certain = (a.rad == 0) & (b.rad == 0)
    few = (a.mid != 0) & (b.mid >= 0) & _has_few_bits(a.mid, b.mid)
    whole = certain & (np.rint(b.mid) == b.mid) & ((a.mid < 0) | few)
    zero = certain & (a.mid == 0) & (b.mid >= 0)
    mid = np.where(whole | zero, np.power(a.mid, b.mid), positive.mid)
    rad = np.where(whole & ~few, _ULPS * np.abs(mid), np.where(whole | zero, 0.0, positive.rad))
    negative = (a.mid - a.rad <= 0) & ~whole & ~zero & ~((a.mid == 0) & (b.mid + b.rad < 0))
    known = ~np.isnan(a.mid) & ~np.isnan(b.mid)
    unknown = negative & known & ~certain
    return enclosed(np.where(unknown, 0.0, mid), np.where(unknown, np.inf, rad), (a, b))


def _fmod(a: Interval, b: Interval) -> Interval:
    """What is left of a quotient without its fraction; of exact operands it is exact."""
    whole = monotone(np.trunc, div(a, b))
    found = sub(a, mul(whole, b))
    certain = (a.rad == 0) & (b.rad == 0) & (b.mid != 0)
    mid = np.where(certain, np.fmod(a.mid, b.mid), found.mid)
    return enclosed(mid, np.where(certain, 0.0, found.rad), (a, b))


def _of_bits(row: Operator) -> Callable[[Interval, Interval], Interval]:
    """What is known of exact operands alone."""

    def meaning(a: Interval, b: Interval) -> Interval:
        assert row.over_floats is not None
        certain = (a.rad == 0) & (b.rad == 0)
        return enclosed(row.over_floats(a.mid, b.mid), np.where(certain, 0.0, np.inf), (a, b))

    return meaning


def _gentle(row: Operator) -> Callable[[Interval], Interval]:
    """A function that is nowhere steeper than its row says."""

    def meaning(a: Interval) -> Interval:
        found = _of_function(_floats(row, a.mid), (row.steepest or 0.0) * a.rad, a)
        return Interval(found.mid, found.rad + np.where(found.rad > 0, _ULPS * np.abs(a.mid), 0.0))

    return meaning


def _bent(row: Operator) -> Callable[[Interval], Interval]:
    """A function that is monotone and defined everywhere."""
    return lambda a: monotone(lambda x: _floats(row, x), a)


def _by_traits(row: Operator) -> Callable[[Interval], Interval]:
    if not row.rises:
        return _gentle(row)
    return _of_positive(row) if row.is_partial else _bent(row)


def _floats(row: Operator, x: FloatArray) -> FloatArray:
    assert row.over_floats is not None
    return np.asarray(row.over_floats(x), dtype=np.float64)


_log = _of_positive(operator("log"))

_COMPARISONS: Mapping[str, Callable[..., NDArray[np.bool_]]] = {
    "gt": lambda over, equal: over,
    "ge": lambda over, equal: over | equal,
    "lt": lambda over, equal: ~over & ~equal,
    "le": lambda over, equal: ~over,
    "eq": lambda over, equal: equal,
    "ne": lambda over, equal: ~equal,
}

_MEANINGS: Mapping[str, Callable[..., Interval]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "neg": neg,
    "square": lambda a: mul(a, a),
    "abs": lambda a: Interval(np.abs(a.mid), a.rad),
    "relu": lambda a: larger(a, exact(np.zeros((1,)))),
    "maximum": larger,
    "minimum": lambda a, b: neg(larger(neg(a), neg(b))),
    "where": choice,
    "cast": lambda a: a,
    "sqrt": _sqrt,
    "rsqrt": lambda a: div(exact(np.ones((1,))), _sqrt(a)),
    "reciprocal_no_nan": lambda a: choice(a, div(exact(np.ones((1,))), a), exact(np.zeros((1,)))),
    "log1p": lambda a: _log(add(a, exact(np.ones((1,))))),
    "pow": _pow,
    "fmod": _fmod,
    **{o.name: _of_bits(o) for o in all_operators() if o.is_bitwise},
    **{o.name: _by_traits(o) for o in all_operators() if o.rises or o.steepest is not None},
}
