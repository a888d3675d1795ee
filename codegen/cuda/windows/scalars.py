"""The computation of one thread, as a graph of scalars without duplicates."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirage_py.codegen.cuda.windows.linear import (
    ALWAYS,
    NEVER,
    Condition,
    Linear,
)
from mirage_py.ugraph.ir.dtypes import BOOL, F32, DType

# Operators whose values are numbers where their operands are small ones.
_FINITE = ("abs", "add", "cast", "maximum", "minimum", "mul", "neg", "relu", "sub")

Attr = float | Condition | Linear | str | None


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a tensor that is read where ``guard`` holds, and is 0 elsewhere."""

    tensor: str
    place: Linear
    guard: Condition


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number: an elementwise operator, ``sum`` or ``max`` of any number of ``args``; a load with
    its ``element``; a const, index or mask with its ``attr``.
    """

    op: str
    args: tuple[int, ...] = ()
    attr: Attr = None
    element: Element | None = None
    dtype: DType = F32


@dataclass(slots=True)
class ScalarGraph:
    """The numbers of a thread in the order in which they were asked for, and what is stored."""

    scalars: list[Scalar] = field(default_factory=list)
    stores: list[tuple[Element, int]] = field(default_factory=list)
    _known: dict[Scalar, int] = field(default_factory=dict)

    def add(self, scalar: Scalar) -> int:
        """The position of a number, made at most once."""
        known = self._known.setdefault(scalar, len(self.scalars))
        if known == len(self.scalars):
            self.scalars.append(scalar)
        return known

    def const(self, value: float) -> int:
        """A literal."""
        return self.add(Scalar("const", attr=value))

    def mask(self, condition: Condition) -> int:
        """Whether a condition on positions holds."""
        return self.add(Scalar("mask", attr=condition, dtype=BOOL))

    def selected(self, where: int, one: int, other: int) -> int:
        """``one`` where a condition holds, ``other`` elsewhere."""
        asked = self._condition(where)
        if asked == ALWAYS:
            return one
        if asked == NEVER or one == other:
            return other
        if asked is not None and self._is_zero(other) and self._is_zero_outside(one, asked):
            return one
        return self.add(Scalar("where", (where, one, other)))

    def product(self, left: int, right: int) -> int:
        """The product; with a mask it is a selection."""
        for mask, other in ((left, right), (right, left)):
            if self.scalars[mask].dtype == BOOL:
                if self.scalars[other].dtype == BOOL:
                    other = self.selected(other, self.const(1.0), self.const(0.0))
                return self.selected(mask, other, self.const(0.0))
        for part, other in ((left, right), (right, left)):
            scalar = self.scalars[part]
            # What is 0 where the selection is: it selects for both.
            if scalar.op == "where" and self._is_zero(scalar.args[2]):
                asked, one = self._condition(scalar.args[0]), scalar.args[1]
                is_zero = asked is not None and self._is_zero_outside(other, asked)
                if asked is not None and is_zero and self._is_finite_outside(one, asked):
                    return self.add(Scalar("mul", (one, other)))
        return self.add(Scalar("mul", (left, right)))

    def _condition(self, position: int) -> Condition | None:
        scalar = self.scalars[position]
        return scalar.attr if scalar.op == "mask" and isinstance(scalar.attr, tuple) else None

    def _is_zero(self, position: int) -> bool:
        scalar = self.scalars[position]
        return scalar.op == "const" and scalar.attr == 0.0

    def _is_zero_outside(self, position: int, asked: Condition) -> bool:
        element = self.scalars[position].element
        return element is not None and all(part in element.guard for part in asked)

    def _is_finite_outside(self, position: int, asked: Condition) -> bool:
        """Whether a value is a number where a condition does not hold and loads are 0: a logarithm
        is not, and 0 times it is NaN.
        """
        scalar = self.scalars[position]
        if scalar.op in ("const", "load"):
            return scalar.op == "const" or self._is_zero_outside(position, asked)
        return scalar.op in _FINITE and all(self._is_finite_outside(a, asked) for a in scalar.args)
