"""Conditions on indices, transferred to other sizes.

s <= t + 3840 with 256 values of t and 4096 of s masks a corner; with 5 and 11 values another offset
masks the same corner. A condition puts a border through the box of its dimensions. The border stays
on the same side of every corner of the box, so that a row that was masked in part is still masked
in part, and in between it keeps its relative place, among the values that the terms have there.
Different borders stay different: a mask that is one off must not become the right one.

A dimension that is split, p * 128 + s with 128 values of s, is one number: at other sizes p counts
in steps of the new extent of s, and the box has the corners that it has without the split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import floor, prod

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.verify.sizes.affine import Affine, affine

_HALF = Fraction(1, 2)
# Points of a box whose values are listed.
_MAX_VALUES = 1 << 18
# Where the border lies beside -constant: orders have it between two integers, equality on one.
_BESIDE = {"lt": -_HALF, "ge": -_HALF, "le": _HALF, "gt": _HALF}


@dataclass(frozen=True, slots=True)
class _Border:
    """``sign * (terms) (op) at``, with the terms in a normal form.

    ``between`` says whether it lies between integers or on one.
    """

    terms: Affine
    sign: int
    at: Fraction
    between: bool


class Conditions:
    """Maps the borders of all ``predicates`` to other sizes at once.

    ``old`` and ``new`` give the sizes. Conditions that divide their dimensions stay as they are.
    """

    def __init__(
        self, predicates: Iterable[Predicate], old: Mapping[str, int], new: Mapping[str, int]
    ) -> None:
        self._old = old
        self._new = new
        found: dict[tuple[Affine, bool], dict[Fraction, None]] = {}
        for predicate in predicates:
            for comparison in comparisons(predicate):
                border = _border(comparison)
                if border is not None:
                    found.setdefault((border.terms, border.between), {})[border.at] = None
        self._moved = {
            (terms, between): self._move(terms, between, sorted(places))
            for (terms, between), places in found.items()
        }

    def moved(self, predicate: Predicate) -> Predicate:
        """One of the predicates at the new sizes."""
        if predicate.args:
            return Predicate(predicate.op, args=tuple(self.moved(a) for a in predicate.args))
        border = _border(predicate)
        if border is None or all(self._old[d] == self._new[d] for d, _ in border.terms.terms):
            return predicate
        new_place = self._moved[border.terms, border.between][border.at]
        left, right = self._rescaled(*predicate.exprs)
        return Predicate(predicate.op, (left, right + int((new_place - border.at) * border.sign)))

    def _rescaled(self, left: IndexExpr, right: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
        """Both sides with the steps of split dimensions at the new sizes."""
        form = affine(left - right)
        assert form is not None
        factors = dict(form.terms)
        for number in _numbers(form, self._old):
            step = number.factor
            for d in number.digits:
                factors[d] = step
                step *= self._new[d]
        if factors == dict(form.terms):
            return left, right
        sides = [ix.const(0), ix.const(-form.constant)]
        for d, factor in factors.items():
            side = 0 if factor > 0 else 1
            sides[side] = ix.add(sides[side], ix.mul(ix.dim(d), abs(factor)))
        return sides[0], sides[1]

    def _move(
        self, terms: Affine, between: bool, places: list[Fraction]
    ) -> dict[Fraction, Fraction]:
        numbers = _numbers(terms, self._old)
        corners = list(zip(_corners(numbers, self._old), _corners(numbers, self._new), strict=True))
        moved: dict[Fraction, Fraction] = {}
        cells: dict[tuple[int, int, int, int], list[Fraction]] = {}
        for border in places:
            met = [now for was, now in corners if was == border]
            below = [pair for pair in corners if pair[0] < border]
            above = [pair for pair in corners if pair[0] > border]
            if met:
                moved[border] = Fraction(met[0])
            elif not below or not above:
                # Outside the box it keeps its distance.
                was, now = min(above) if above else max(below)
                moved[border] = border - was + now
            else:
                # All corners on one side count: their order may differ at the new sizes.
                old_cell = max(was for was, _ in below), min(was for was, _ in above)
                new_cell = max(now for _, now in below), min(now for _, now in above)
                cells.setdefault((*old_cell, *new_cell), []).append(border)
        reached = _reached(numbers, self._new) if cells else []
        for (old_low, old_high, new_low, new_high), borders in cells.items():
            inside = [value for value in reached if new_low < value < new_high]
            # Between two values of the terms, or on one: elsewhere it would make no difference.
            slots = [new_low, *inside] if between else inside
            slots += range(new_high, new_high + len(borders))
            spread = _spread(borders, max(len(inside) + between, 1), old_low, old_high)
            beside = _HALF if between else Fraction(0)
            moved |= {b: slots[n] + beside for b, n in zip(borders, spread, strict=True)}
        return moved


@dataclass(frozen=True, slots=True)
class _Number:
    """``factor`` times the mixed-radix number with these dimensions as digits, minor first."""

    factor: int
    digits: tuple[str, ...]


def _numbers(terms: Affine, sizes: Mapping[str, int]) -> list[_Number]:
    """The terms as multiples of mixed-radix numbers, most of them of one digit."""
    numbers: list[_Number] = []
    for d, factor in sorted(terms.terms, key=lambda term: (abs(term[1]), term[0])):
        minor = [
            n
            for n in numbers
            if sizes[n.digits[-1]] > 1 and n.factor * prod(sizes[e] for e in n.digits) == factor
        ]
        if len(minor) == 1:
            numbers[numbers.index(minor[0])] = _Number(minor[0].factor, (*minor[0].digits, d))
        else:
            numbers.append(_Number(factor, (d,)))
    return numbers


def _corners(numbers: list[_Number], sizes: Mapping[str, int]) -> list[int]:
    """The values of the terms at the corners of their box."""
    ends = [(0, n.factor * (prod(sizes[d] for d in n.digits) - 1)) for n in numbers]
    return [sum(corner) for corner in product(*ends)]


def _reached(numbers: list[_Number], sizes: Mapping[str, int]) -> list[int]:
    """The values of the terms, ascending; of a large box all integers between the least and the
    greatest.
    """
    counts = [prod(sizes[d] for d in n.digits) for n in numbers]
    if prod(counts) > _MAX_VALUES:
        corners = _corners(numbers, sizes)
        return list(range(min(corners), max(corners) + 1))
    values = {0: None}
    for number, count in zip(numbers, counts, strict=True):
        steps = range(0, number.factor * count, number.factor)
        values = dict.fromkeys(v + step for v in values for step in steps)
    return sorted(values)


def comparisons(predicate: Predicate) -> Iterator[Predicate]:
    """The comparisons that a predicate is made of."""
    if predicate.exprs:
        yield predicate
    for part in predicate.args:
        yield from comparisons(part)


def _border(comparison: Predicate) -> _Border | None:
    left, right = comparison.exprs
    form = affine(left - right)
    if form is None or not form.terms:
        return None
    beside = _BESIDE.get(comparison.op, Fraction(0))
    terms = sorted(form.terms)
    sign = 1 if terms[0][1] > 0 else -1
    normal = Affine(tuple((d, factor * sign) for d, factor in terms), 0)
    return _Border(normal, sign, (beside - form.constant) * sign, bool(beside))


def _spread(borders: list[Fraction], slots: int, low: int, high: int) -> list[int]:
    """A slot for each border: as near as possible to its relative place, and none twice.

    If there are more borders than slots, the last ones get places beyond.
    """
    chosen: list[int] = []
    for number, border in enumerate(borders):
        place = floor((border - low) / (high - low) * slots)
        place = max(0, min(place, slots - (len(borders) - number)))
        chosen.append(max(place, chosen[-1] + 1) if chosen else place)
    return chosen
