"""Propagation of operand errors through an elementwise operator.

An error is a spread, and four of them are allowed in the end. Where an operator bends within four
spreads of its operand, as silu does at a sum whose sign is a matter of rounding, one spread does
not tell what four do: the operator is evaluated there too, and a quarter of that counts if it is
more. For the same reason the error of a product includes the product of both errors.

A value that overflowed is surely infinite if its error is 0; if the error is infinite too, the
value may as well be 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.operators import named, operator
from mirage_py.verify.numerical_check.float_case import SPREAD

# Operators that carry an operand's error on by a factor, each to that of its first and its second.
_LINEAR = {
    "add": ("one", "one"),
    "sub": ("one", "one"),
    "mul": ("times", "times"),
    "div": ("over",),
}
# Operators that are as good as straight within four spreads of this size, and those where that is
# the size relative to the operand: exp is off by a fifth of what is carried on, a quotient by half,
# and four spreads leave more than that. So softmax, whose numerator and divisor err alike, keeps
# the bound that it has where both are straight.
_SMOOTH = named(lambda o: o.straight == "absolute")
_SCALE_FREE = named(lambda o: o.straight == "relative")
_STRAIGHT = 1 / 12

_FLOATS = FloatMeaning()


def carried_error(
    op: str,
    values: Sequence[FloatArray],
    errors: Sequence[FloatArray | None],
    place: int,
    value: FloatArray,
) -> FloatArray:
    """How far the error of the operand at ``place``, which has one, takes the result ``value``."""
    error = errors[place]
    assert error is not None
    with np.errstate(all="ignore"):
        is_finite = op in _LINEAR and bool(np.isfinite(value.sum()))
    if is_finite:
        found = _scaled(op, values, errors, place, error)
        if found is not None:
            return found
    near = _moved(op, values, place, error, value)
    if _is_straight(op, values[place], error):
        return near
    far = _moved(op, values, place, SPREAD * error, value)
    found = np.fmax(near, np.divide(far, SPREAD, out=far), out=near)
    row = operator(op)
    if row.period is None:
        return found
    # An end that lies further away says nothing of what is between.
    return np.where(SPREAD * error > row.period / 4, (row.steepest or 1.0) * error, found)


def joined(a: FloatArray, b: FloatArray) -> FloatArray:
    """Independent errors together."""
    with np.errstate(all="ignore"):
        squares = np.asarray(a * a + b * b)
        # Much faster than hypot, which is for what has no square: very large, or not finite.
        return np.sqrt(squares) if np.isfinite(squares.sum()) else np.asarray(np.hypot(a, b))


def _is_straight(op: str, operand: FloatArray, error: FloatArray) -> bool:
    if op in _SMOOTH:
        return bool(error.max(initial=0.0) <= _STRAIGHT)
    if op in _SCALE_FREE:
        return bool((error <= _STRAIGHT * np.abs(operand)).all())
    return False


def _scaled(
    op: str,
    values: Sequence[FloatArray],
    errors: Sequence[FloatArray | None],
    place: int,
    error: FloatArray,
) -> FloatArray | None:
    """How far both ends of an operand's error take a result that is linear in it; None where it is
    not, or what comes out is not finite.
    """
    if place >= len(_LINEAR[op]):
        return None
    factor = _LINEAR[op][place]
    other = np.abs(values[1 - place])
    with np.errstate(all="ignore"):
        if factor == "one":
            found = np.broadcast_to(error, np.broadcast_shapes(error.shape, other.shape))
        else:
            moves = errors[1] if place == 0 else None
            if moves is not None and not (moves <= _STRAIGHT * other).all():
                other = _worse_end(factor, other, SPREAD * moves)
            found = np.asarray(error * other if factor == "times" else error / other)
        return found if np.isfinite(found.sum()) else None


def _worse_end(factor: str, other: FloatArray, moves: FloatArray) -> FloatArray:
    """The magnitude of a factor that may move so far, at the end where it carries more on."""
    end = other + moves if factor == "times" else np.minimum(other, np.abs(other - moves))
    return np.where(moves > SPREAD * _STRAIGHT * other, end, other)


def _moved(
    op: str, values: Sequence[FloatArray], place: int, error: FloatArray, value: FloatArray
) -> FloatArray:
    """The larger distance from ``value`` with the operand at both ends of its error; an end without
    value, as sqrt(-1), does not count.
    """
    with np.errstate(all="ignore"):
        up, down = (
            _distance(_FLOATS.apply(op, None, [*values[:place], end, *values[place + 1 :]]), value)
            for end in _ends(values[place], error)
        )
        return np.fmax(up, down, out=up)


def _ends(x: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    up, down = np.asarray(x + error), np.asarray(x - error)
    if np.isfinite(error.sum()):
        return up, down
    lost = np.isinf(x) & np.isinf(error)
    return np.where(lost & (x < 0), 0.0, up), np.where(lost & (x > 0), 0.0, down)


def _distance(end: FloatArray, value: FloatArray) -> FloatArray:
    found = np.asarray(end - value)
    np.abs(found, out=found)
    if not np.isfinite(found.sum()):
        found = np.where(end == value, 0.0, found)
    return found
