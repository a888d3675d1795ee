"""Index expressions that are sums of multiples of dimensions, and what a change of sizes does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from mirage_py.ugraph import index as ix
from mirage_py.ugraph.index import IndexExpr, Predicate

_HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Affine:
    """The sum of ``factor * dim`` over ``terms``, plus ``constant``. No factor is 0."""

    terms: tuple[tuple[str, int], ...]
    constant: int

    def range(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Least and greatest value of the terms, without the constant."""
        ends = [factor * (sizes[d] - 1) for d, factor in self.terms]
        return sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)


def affine(expr: IndexExpr) -> Affine | None:
    """The expression as a sum, or None where it divides."""
    factors: dict[str, int] = {}
    constant = 0
    todo = [(expr, 1)]
    while todo:
        part, factor = todo.pop()
        if part.op == "dim":
            factors[part.name] = factors.get(part.name, 0) + factor
        elif part.op == "const":
            constant += factor * part.value
        elif part.op == "mul":
            todo.append((part.args[0], factor * part.value))
        elif part.op == "add":
            todo.extend((a, factor) for a in part.args)
        else:
            return None
    return Affine(tuple((d, f) for d, f in factors.items() if f), constant)


def is_mixed_radix(expr: IndexExpr, sizes: Mapping[str, int]) -> bool:
    """Whether it numbers the points of its dimensions without gap: h * 64 + d with 64 values of
    d.
    """
    form = affine(expr)
    if form is None or form.constant:
        return False
    step = 1
    for d, factor in _minor_to_major(form, sizes):
        if factor != step:
            return False
        step *= sizes[d]
    return bool(form.terms)


def rescaled_radix(expr: IndexExpr, old: Mapping[str, int], new: Mapping[str, int]) -> IndexExpr:
    """A mixed-radix number at other sizes: h * 64 + d becomes h * 5 + d with 5 values of d."""
    form = affine(expr)
    assert form is not None
    result = ix.const(0)
    step = 1
    for d, _ in _minor_to_major(form, old):
        result = ix.add(ix.mul(ix.dim(d), step), result)
        step *= new[d]
    return result


def _minor_to_major(form: Affine, sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    # A dimension of size 1 has the factor of the next one: it goes first.
    return sorted(form.terms, key=lambda term: (term[1], sizes[term[0]]))


def rescaled_predicate(
    predicate: Predicate, old: Mapping[str, int], new: Mapping[str, int]
) -> Predicate:
    """The condition at other sizes: its border keeps its place relative to the range of its sides.

    s <= q + 3840 with 256 values of q and 4096 of s masks a corner; with 5 and 11 values another
    offset masks the same corner. Conditions that divide their dimensions stay as they are.
    """
    if predicate.args:
        args = tuple(rescaled_predicate(a, old, new) for a in predicate.args)
        return Predicate(predicate.op, args=args)
    left, right = predicate.exprs
    form = affine(left - right)
    if form is None or all(old[d] == new[d] for d, _ in form.terms):
        return predicate
    # terms (op) -constant. The border lies between two integers for an order, on one for equality.
    beside = {"lt": -_HALF, "ge": -_HALF, "le": _HALF, "gt": _HALF}.get(predicate.op, Fraction(0))
    border = beside - form.constant
    moved = _moved_border(border, form.range(old), form.range(new), on_integers=not beside)
    return Predicate(predicate.op, (left, right + int(moved - border)))


def _moved_border(
    border: Fraction, old: tuple[int, int], new: tuple[int, int], *, on_integers: bool
) -> Fraction:
    """Where the border is between the ends of the new range, as it was between those of the old."""
    margin = Fraction(0) if on_integers else _HALF
    low, high = old[0] - margin, old[1] + margin
    new_low, new_high = new[0] - margin, new[1] + margin
    if border <= low:
        return new_low - (low > border if on_integers else 0)
    if border >= high:
        return new_high + (border > high if on_integers else 0)
    place = (border - low) / (high - low)
    steps = floor(place * (new_high - new_low) + _HALF)
    if not on_integers:
        # A condition that cut its range still cuts it.
        steps = max(1, min(steps, int(new_high - new_low) - 1))
    return new_low + steps
