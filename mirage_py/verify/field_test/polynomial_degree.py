"""Degrees of the rational functions that mirage_py.verify.field_test.unknown_functions evaluates.

Evaluated over this meaning, a program or µGraph yields, instead of numbers, bounds on the degrees
of numerator and denominator, in the variables of that evaluation: inputs, values of unknown
functions, and shifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.field.reading import Reading
from mirage_py.ugraph.field.ring import exact_rational
from mirage_py.ugraph.interpret.buffers import Buffer, Index
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.operators import Calls, operator

# Pairs of operators that are one function with its arguments in the other order.
MIRRORED = {"gt": "lt", "ge": "le"}


@dataclass(frozen=True, slots=True)
class Degrees:
    """Bounds of the degrees for every element of a tensor.

    ``shifts`` counts what shifts exponents in it: the exponential has a power of each as a factor.
    """

    extents: tuple[int, ...]
    numerator: int
    denominator: int = 0
    shifts: int = 0

    def of(self, extents: Sequence[int]) -> Degrees:
        """The same bounds for another shape."""
        return replace(self, extents=tuple(extents))


@dataclass(frozen=True, slots=True)
class Arguments:
    """How often an unknown function is evaluated, and bounds of its arguments' degrees."""

    count: int
    numerator: int
    denominator: int

    @property
    def coincidence_degree(self) -> int:
        """Degrees of the differences of all pairs together."""
        return self.count**2 * max(1, self.numerator + self.denominator)


class DegreeMeaning:
    """Counts, besides, all that can go wrong by chance: arguments that may coincide, zero
    divisors.
    """

    def __init__(self, reading: Reading = Reading()) -> None:  # noqa: B008
        self._reading = reading
        self.arguments: dict[str, Arguments] = {}
        self.divisor_degrees = 0
        self._calls = Calls(self.apply, self.const)

    def apply(self, op: str, attr: Attr, args: Sequence[Degrees]) -> Degrees:
        extents = np.broadcast_shapes(*(a.extents for a in args))
        row = operator(op)
        if row.defined is not None:
            return cast(Degrees, row.defined(self._calls, *args))
        if not row.is_rational and op != "exp":
            found = self._unknown(MIRRORED.get(op, op), extents, args)
            return replace(found, shifts=1) if any(a.shifts for a in args) else found
        if op == "cast" and self._reading.is_opaque(str(attr)):
            return self._unknown(f"cast {attr}", extents, args)
        return self._rational(op, args).of(extents)

    def _rational(self, op: str, args: Sequence[Degrees]) -> Degrees:
        a = args[0]
        if op in ("add", "sub"):
            return _sum(a, args[1])
        if op == "mul":
            return _product(a, args[1])
        if op == "div":
            return self._quotient(a, args[1])
        if op == "reciprocal_no_nan":
            # Where a polynomial happens to be 0 it is another function: no less likely to show than
            # two arguments of an unknown function that happen to be equal.
            self._unknown(op, a.extents, [a])
            return Degrees(a.extents, a.denominator, a.numerator)
        if op == "square":
            return _product(a, a)
        if op == "where":
            return _sum(args[2], _product(a, _sum(args[1], args[2])))
        if op == "exp":
            return self._exp(a)
        return a  # neg, cast

    def power(self, x: Degrees, exponent: float) -> Degrees:
        return self._unknown(f"power {exponent!r}", x.extents, [x])

    def select(self, mask: Degrees, x: Degrees) -> Degrees:
        return _product(mask, x).of(np.broadcast_shapes(mask.extents, x.extents))

    def shift(self, x: Degrees, key: str) -> Degrees:
        del key
        return Degrees(x.extents, 0, shifts=1)

    def const(self, value: float) -> Degrees:
        """Its prime factors may be variables; minus infinity is a shift."""
        if not isfinite(value):
            return Degrees((), 0, shifts=1)
        return Degrees((), *self._reading.degrees(exact_rational(value)))

    def size(self, extent: int) -> Degrees:
        del extent
        return Degrees((), 0)

    def index(self, values: NDArray[np.int64]) -> Degrees:
        return Degrees(values.shape, 0)

    def mask(self, truth: NDArray[np.bool_]) -> Degrees:
        return Degrees(truth.shape, 0)

    def sum(self, x: Degrees, axes: Sequence[int]) -> Degrees:
        terms = prod(x.extents[a] for a in axes)
        numerator = x.numerator + (terms - 1) * x.denominator
        return Degrees(_reduced(x.extents, axes), numerator, terms * x.denominator)

    def max(self, x: Degrees, axes: Sequence[int]) -> Degrees:
        return Degrees(_reduced(x.extents, axes), 0, shifts=1)

    def contract(self, a: Degrees, b: Degrees, axes: Sequence[int]) -> Degrees:
        return self.sum(_product(a, b).of(np.broadcast_shapes(a.extents, b.extents)), axes)

    def rescale(self, old: Degrees, new: Degrees, degree: int) -> Degrees:
        moved = abs(degree) * (old.shifts + new.shifts)
        return Degrees(np.broadcast_shapes(old.extents, new.extents), moved, moved)

    def shape(self, x: Degrees) -> tuple[int, ...]:
        return x.extents

    def reshape(self, x: Degrees, shape: Sequence[int]) -> Degrees:
        return x.of(shape)

    def transpose(self, x: Degrees, perm: Sequence[int]) -> Degrees:
        return x.of([x.extents[a] for a in perm])

    def stretch(self, x: Degrees, shape: Sequence[int]) -> Degrees:
        return x.of(shape)

    def load(self, x: Degrees, index: Index) -> Degrees:
        return x.of(np.broadcast_to(np.empty(()), x.extents)[index].shape)

    def integers(self, x: Degrees) -> NDArray[np.int64]:
        return np.zeros(x.extents, dtype=np.int64)  # all elements of a tensor have one degree

    def buffer(self, shape: Sequence[int]) -> Buffer[Degrees]:
        return _DegreeBuffer(shape)

    def _unknown(self, name: str, extents: Sequence[int], args: Sequence[Degrees]) -> Degrees:
        known = self.arguments.get(name, Arguments(0, 0, 0))
        self.arguments[name] = Arguments(
            known.count + prod(extents),
            max(known.numerator, *(a.numerator for a in args)),
            max(known.denominator, *(a.denominator for a in args)),
        )
        return Degrees(tuple(extents), 1)

    def _exp(self, a: Degrees) -> Degrees:
        """The value or its inverse, times powers of shifts or of their inverses."""
        self._unknown("exp", a.extents, [a])
        return Degrees(a.extents, 1 + a.shifts, 1 + a.shifts)

    def _quotient(self, a: Degrees, b: Degrees) -> Degrees:
        self.divisor_degrees += prod(b.extents) * (b.numerator + b.denominator)
        return Degrees(a.extents, a.numerator + b.denominator, a.denominator + b.numerator)


class _DegreeBuffer:
    def __init__(self, shape: Sequence[int]) -> None:
        self._held = Degrees(tuple(shape), 0)
        self._written = np.zeros(tuple(shape), dtype=np.bool_)

    def write(self, index: Index, value: Degrees) -> None:
        self._written[index] = True
        self._held = Degrees(
            self._held.extents,
            max(self._held.numerator, value.numerator),
            max(self._held.denominator, value.denominator),
            max(self._held.shifts, value.shifts),
        )

    def missing(self) -> int:
        return int(self._written.size - self._written.sum())

    def read(self) -> Degrees:
        return self._held


def _sum(a: Degrees, b: Degrees) -> Degrees:
    numerator = max(a.numerator + b.denominator, b.numerator + a.denominator)
    return Degrees(a.extents, numerator, a.denominator + b.denominator, a.shifts + b.shifts)


def _product(a: Degrees, b: Degrees) -> Degrees:
    return Degrees(a.extents, a.numerator + b.numerator, a.denominator + b.denominator)


def _reduced(extents: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if n in axes else e for n, e in enumerate(extents))
