"""Indices as linear forms, and comparisons of them in a normal form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from mirage_py.ugraph.ir.index import IndexExpr

# Of a thread's positions, by name: how many there are.
Extents = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of ``terms``, each with its factor, and a constant. A term is a dimension, or a
    quotient or remainder that is no linear form.
    """

    terms: tuple[tuple[IndexExpr, int], ...] = ()
    constant: int = 0

    def plus(self, other: Linear) -> Linear:
        """The sum of both."""
        factors = dict(self.terms)
        for term, factor in other.terms:
            factors[term] = factors.get(term, 0) + factor
        kept = sorted(((t, f) for t, f in factors.items() if f), key=lambda tf: str(tf[0]))
        return Linear(tuple(kept), self.constant + other.constant)

    def times(self, factor: int) -> Linear:
        """The product with a number."""
        if not factor:
            return Linear()
        return Linear(tuple((t, f * factor) for t, f in self.terms), self.constant * factor)

    def bounds(self, extents: Extents) -> tuple[int, int]:
        """Smallest and largest value."""
        low = high = self.constant
        for term, factor in self.terms:
            ends = [factor * end for end in term.bounds(extents)]
            low, high = low + min(ends), high + max(ends)
        return low, high


def linear(expr: IndexExpr) -> Linear:
    """The linear form of an index expression."""
    if expr.op == "const":
        return Linear((), expr.value)
    if expr.op == "add":
        return linear(expr.args[0]).plus(linear(expr.args[1]))
    if expr.op == "mul":
        return linear(expr.args[0]).times(expr.value)
    return Linear(((expr, 1),))


@dataclass(frozen=True, slots=True)
class Comparison:
    """``terms op bound`` with op ge, lt, eq or ne, the factors of the terms without a common
    divisor and the first of them positive; or one of ``choices`` (or); or what never holds (never).
    """

    op: str
    terms: tuple[tuple[IndexExpr, int], ...] = ()
    bound: int = 0
    choices: tuple[Condition, ...] = ()


# All of these hold; nothing is asked where there are none.
Condition = tuple[Comparison, ...]

ALWAYS: Condition = ()
NEVER: Condition = (Comparison("never"),)

_OPPOSITE = {"ge": "lt", "lt": "ge", "eq": "ne", "ne": "eq"}


def both(*conditions: Condition) -> Condition:
    """Where all of them hold."""
    if any(c == NEVER for c in conditions):
        return NEVER
    return tuple(dict.fromkeys(part for c in conditions for part in c))


def opposite(condition: Condition) -> Condition:
    """Where it does not hold."""
    if condition == NEVER:
        return ALWAYS
    return either([_opposite_of(part) for part in condition])


def _opposite_of(part: Comparison) -> Condition:
    if part.op == "or":
        return both(*map(opposite, part.choices))
    return (Comparison(_OPPOSITE[part.op], part.terms, part.bound),)


def either(conditions: Iterable[Condition]) -> Condition:
    """Where one of them holds."""
    kept = tuple(dict.fromkeys(c for c in conditions if c != NEVER))
    if ALWAYS in kept:
        return ALWAYS
    if len(kept) < 2:
        return kept[0] if kept else NEVER
    return (Comparison("or", choices=kept),)


def at_least(form: Linear, bound: int, extents: Extents) -> Condition:
    """Where a linear form is at least a number."""
    low, high = form.bounds(extents)
    if low >= bound:
        return ALWAYS
    if high < bound:
        return NEVER
    by, rest = _divisor(form), bound - form.constant
    terms = tuple((t, f // by) for t, f in form.terms)
    least = -(-rest // by)
    if terms[0][1] < 0:  # -t >= n is t < 1 - n
        return (Comparison("lt", tuple((t, -f) for t, f in terms), 1 - least),)
    return (Comparison("ge", terms, least),)


def combined(
    op: str, parts: Sequence[Condition], forms: Sequence[Linear], extents: Extents
) -> Condition:
    """A predicate by its operator, the conditions or the forms that it is over."""
    if op == "and":
        return both(*parts)
    if op == "or":
        return either(parts)
    if op == "not":
        return opposite(parts[0])
    left, right = forms
    form = left.plus(right.times(-1))
    if op in ("ge", "gt"):
        return at_least(form, int(op == "gt"), extents)
    if op in ("lt", "le"):
        return opposite(at_least(form, int(op == "le"), extents))
    same = _is_zero(form, extents)
    return same if op == "eq" else opposite(same)


def _is_zero(form: Linear, extents: Extents) -> Condition:
    low, high = form.bounds(extents)
    if low == high == 0:
        return ALWAYS
    by = _divisor(form)
    if not low <= 0 <= high or form.constant % by:
        return NEVER
    sign = 1 if form.terms[0][1] > 0 else -1
    terms = tuple((t, sign * f // by) for t, f in form.terms)
    return (Comparison("eq", terms, -sign * form.constant // by),)


def _divisor(form: Linear) -> int:
    return gcd(*(f for _, f in form.terms)) or 1
