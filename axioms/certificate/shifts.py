"""Values that carry shifts: ``kept - by`` or ``kept * exp(-by)``, for free numbers ``by``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from mirage_py.axioms.certificate.terms import RefusedError, Terms

# By operator and kind of value: how often the shifts of each operand enter, and the kind that
# comes out. sqrt(x exp(-m)) = sqrt(x) exp(-m / 2), and so on, whatever the shifts are.
_RULES: dict[tuple[str, str], tuple[tuple[Fraction | int, ...], str]] = {
    **{(op, "scaled"): ((1,), "scaled") for op in ("neg", "abs", "relu")},
    ("exp", "minus"): ((1,), "scaled"),
    ("log", "scaled"): ((1,), "minus"),
    ("neg", "minus"): ((-1,), "minus"),
    ("square", "scaled"): ((2,), "scaled"),
    ("sqrt", "scaled"): ((Fraction(1, 2),), "scaled"),
    ("rsqrt", "scaled"): ((Fraction(-1, 2),), "scaled"),
    ("reciprocal_no_nan", "scaled"): ((-1,), "scaled"),
    ("mul", "scaled"): ((1, 1), "scaled"),
    ("div", "scaled"): ((1, -1), "scaled"),
    ("add", "minus"): ((1, 1), "minus"),
    ("sub", "minus"): ((1, -1), "minus"),
}
_SAME_SCALE = ("add", "sub", "maximum", "minimum", "where")


class Shift(NamedTuple):
    """A number of which nothing is known but the axes along which it may differ."""

    name: str
    axes: tuple[str, ...]


class Value(NamedTuple):
    """``how`` is "plain", "minus" (kept - by) or "scaled" (kept * exp(-by))."""

    kept: int
    how: str = "plain"
    by: tuple[tuple[Shift, Fraction], ...] = ()


def value(kept: int, how: str, shifts: Sequence[tuple[Shift, Fraction]]) -> Value:
    """The value with each shift once; plain if they cancel."""
    total: dict[Shift, Fraction] = {}
    for shift, k in shifts:
        total[shift] = total.get(shift, Fraction(0)) + k
    left = tuple(sorted((s, k) for s, k in total.items() if k))
    return Value(kept, how, left) if left else Value(kept)


def elementwise(terms: Terms, op: str, args: Sequence[Value]) -> Value:
    """An operator on values."""
    kept, hows = [a.kept for a in args], [a.how for a in args]
    kind = next((how for how in hows if how != "plain"), "plain")
    if kind == "plain":
        return Value(terms.make(op, kept))
    factor = Fraction(0)
    if len(args) == 2 and hows[1] == "plain" and terms.rows[kept[1]].op == "const":
        factor = Fraction(terms.rows[kept[1]].attr)
    rule = _RULES.get((op, kind))
    if (op, kind) == ("mul", "minus") and hows[0] == "plain":
        return elementwise(terms, op, args[::-1])
    if factor and (op, kind) in (("mul", "minus"), ("div", "minus"), ("pow", "scaled")):
        rule = ((1 / factor if op == "div" else factor, 0), kind)
    if rule is None or any(how not in ("plain", kind) for how in hows):
        chosen = args[1:] if op == "where" else args
        alike = [(a.how, a.by) for a in chosen if kind != "scaled" or a != Value(terms.zero)]
        if op not in _SAME_SCALE or len(set(alike)) != 1 or alike[0][0] != kind:
            raise RefusedError(f"'{op}' of values with shifts")
        if op == "where" and hows[0] != "plain":
            raise RefusedError("a condition on a shifted value")
        return Value(terms.make(op, kept), kind, alike[0][1])
    by = [(s, k * times) for a, times in zip(args, rule[0], strict=True) for s, k in a.by]
    return value(_simplest(terms, op, kept, kind), rule[1], by)


def _simplest(terms: Terms, op: str, kept: Sequence[int], kind: str) -> int:
    """The operator on what is kept, without what changes nothing."""
    zero, one = terms.zero, terms.one
    if kept[0] == zero and kind == "minus" and op in ("exp", "neg", "mul", "div"):
        return one if op == "exp" else zero
    if (op == "mul" and kept[1] == one) or (op in ("add", "sub") and kept[1] == zero):
        return kept[0]
    if op in ("mul", "add") and kept[0] == (one if op == "mul" else zero):
        return kept[1]
    if op == "sub" and kept[0] == zero:
        return terms.make("neg", kept[1:])
    return terms.make(op, kept)


def reduction(terms: Terms, op: str, axes: Sequence[str], x: Value) -> Value:
    """A sum or a maximum over axes along which no shift of the value varies."""
    if any(axis in shift.axes for shift, _ in x.by for axis in axes):
        raise RefusedError(f"a {op} over shifts that vary along {axes}")
    if op == "sum" and x.how == "minus":
        raise RefusedError("a sum of values less a shift")
    return x._replace(kept=terms.reduce(op, axes, x.kept))
