"""Shifted values, ``kept - by`` or ``kept * exp(-by)``, as terms.

A kernel that takes exponentials subtracts a maximum from each and divides it out again. Here the
maximum is a *shift*: an unknown number, of which only the axes along which it may vary are known.
``by`` is a sum of multiples of shifts, ``kept`` a term without any. The rules are laws of real
numbers for all values of the shifts: exp(x - m) = exp(x) exp(-m), log(x exp(-m)) = log(x) - m,
products add what they are scaled by, sums need equal scales, a sum over an axis needs shifts that
do not vary along it. Where no rule fits there is no value; nothing is assumed about the choice of
shifts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Literal

from mirage_py.axioms.terms.term import Term, apply, const, reduce
from mirage_py.errors import UnsupportedError

ZERO, ONE = const("0"), const("1")

# How ``by`` enters: not at all, kept - by, or kept * exp(-by).
How = Literal["plain", "minus", "scaled"]

SAME_SCALE = ("add", "sub", "maximum", "minimum", "where")
_POWERS = {
    "square": Fraction(2),
    "sqrt": Fraction(1, 2),
    "rsqrt": Fraction(-1, 2),
    "reciprocal_no_nan": Fraction(-1),
}
# f(x c) = f(x) c for every positive c.
_HOMOGENEOUS = ("neg", "abs", "relu")


@dataclass(frozen=True, slots=True)
class Shift:
    """A free number for each point of ``axes``."""

    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A term and the multiples of shifts that go with it, none of them zero."""

    kept: Term
    how: How = "plain"
    by: tuple[tuple[Shift, Fraction], ...] = ()


def value(kept: Term, how: How, by: Mapping[Shift, Fraction]) -> Value:
    """The value with its shifts in one order; plain if there are none left."""
    left = tuple(sorted(((s, k) for s, k in by.items() if k), key=lambda item: item[0].name))
    return Value(kept, how, left) if left else Value(kept)


def shift_itself(shift: Shift) -> Value:
    """The number that is subtracted: 0 - (-shift)."""
    return Value(ZERO, "minus", ((shift, Fraction(-1)),))


def is_of_tiles(shift: Shift) -> bool:
    """Whether it is one number for each tile of some loop: another loop has other tiles."""
    return any(a.endswith(".l") and f"{a[:-2]}.t" not in shift.axes for a in shift.axes)


def refuse(what: str) -> UnsupportedError:
    """The error of every rule that does not fit."""
    return UnsupportedError(what, why="it is no value with known shifts")


def elementwise(op: str, args: Sequence[Value]) -> Value:
    """An operator of terms applied to values. Raises UnsupportedError where no rule fits."""
    terms = [a.kept for a in args]
    if all(a.how == "plain" for a in args):
        return Value(apply(op, *terms))
    if op == "exp":
        kept = ONE if terms[0] == ZERO else apply("exp", terms[0])
        return _checked(args[0], "minus", op, Value(kept, "scaled", args[0].by))
    if op == "log":
        return _checked(args[0], "scaled", op, Value(apply("log", terms[0]), "minus", args[0].by))
    if op in _HOMOGENEOUS and args[0].how == "scaled":
        return Value(apply(op, terms[0]), "scaled", args[0].by)
    if op == "neg":
        return value(_negated(terms[0]), "minus", {s: -k for s, k in args[0].by})
    if op in _POWERS and args[0].how == "scaled":
        return _raised(apply(op, terms[0]), args[0], _POWERS[op])
    if op == "pow" and args[0].how == "scaled" and args[1].kept.op == "const":
        return _raised(apply(op, *terms), args[0], _number(args[1].kept))
    if op in ("mul", "div"):
        return _product(op, args[0], args[1])
    if op in ("add", "sub") and all(a.how != "scaled" for a in args):
        return _sum(op, args[0], args[1])
    if op in SAME_SCALE:
        return _same_scale(op, args)
    raise refuse(f"'{op}' of a shifted value")


def reduction(op: str, axes: tuple[str, ...], x: Value) -> Value:
    """A sum or a maximum over axes along which the shifts are constant."""
    if any(axis in shift.axes for shift, _ in x.by for axis in axes):
        raise refuse(f"a {op} over {', '.join(axes)} of values whose shifts vary there")
    if op == "sum" and x.how == "minus":
        raise refuse("a sum of values less a shift")
    return Value(reduce(op, axes, x.kept), x.how, x.by)


def replaced(x: Value, old: Shift, new: Shift) -> Value:
    """The value with one shift for another."""
    return value(x.kept, x.how, {new if s == old else s: k for s, k in x.by})


def _checked(x: Value, how: How, op: str, result: Value) -> Value:
    if x.how != how:
        raise refuse(f"'{op}' of a shifted value")
    return result


def _number(term: Term) -> Fraction:
    if not isfinite(float(term.attr)):
        raise refuse(f"{term.attr} times a shift")
    return Fraction(term.attr)


def _raised(kept: Term, x: Value, power: Fraction) -> Value:
    return value(kept, "scaled", {s: k * power for s, k in x.by})


def _negated(term: Term) -> Term:
    return term if term == ZERO else apply("neg", term)


def _product(op: str, x: Value, y: Value) -> Value:
    sign = 1 if op == "mul" else -1
    if "minus" not in (x.how, y.how):
        scales = _joined(x, y, sign)
        if op == "mul" and ONE in (x.kept, y.kept):
            return value(y.kept if x.kept == ONE else x.kept, "scaled", scales)
        return value(apply(op, x.kept, y.kept), "scaled", scales)
    if op == "mul" and x.kept.op == "const" and x.how == "plain":
        x, y = y, x
    if y.how != "plain" or y.kept.op != "const" or (op == "div" and y.kept == ZERO):
        raise refuse(f"'{op}' of a value less a shift, by what is no constant")
    factor = _number(y.kept) if op == "mul" else 1 / _number(y.kept)
    kept = ZERO if x.kept == ZERO else apply(op, x.kept, y.kept)
    return value(kept, "minus", {s: k * factor for s, k in x.by})


def _joined(x: Value, y: Value, sign: int) -> dict[Shift, Fraction]:
    by = dict(x.by)
    for shift, k in y.by:
        by[shift] = by.get(shift, Fraction(0)) + sign * k
    return by


def _sum(op: str, x: Value, y: Value) -> Value:
    by = _joined(x, y, 1 if op == "add" else -1)
    if y.kept == ZERO:
        return value(x.kept, "minus", by)
    if x.kept == ZERO:
        return value(y.kept if op == "add" else _negated(y.kept), "minus", by)
    return value(apply(op, x.kept, y.kept), "minus", by)


def _same_scale(op: str, args: Sequence[Value]) -> Value:
    """All operands shifted alike; 0 is scaled like anything."""
    chosen = args[1:] if op == "where" else args
    if op == "where" and args[0].how != "plain":
        raise refuse("a condition on a shifted value")
    shifted = next(a for a in chosen if a.how != "plain")
    for other in chosen:
        is_zero = shifted.how == "scaled" and other == Value(ZERO)
        if not is_zero and (other.how, other.by) != (shifted.how, shifted.by):
            raise refuse(f"'{op}' of values with different shifts")
    return Value(apply(op, *(a.kept for a in args)), shifted.how, shifted.by)
