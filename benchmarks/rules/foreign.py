"""Rules of other systems in our operators, without shapes.

An activation inside a convolution is one behind it. A product with a scalar is a product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirage_py.axioms.substitutions.expression import ANY, UNIT, Attr, Expr


class OtherOperatorError(Exception):
    """An operator that our rules are not about."""


@dataclass(frozen=True)
class Foreign:
    """A rule: outputs of its left side and of its right side, or the operator that is not ours."""

    name: str
    left: tuple[Any, ...] = ()
    right: tuple[Any, ...] = ()
    other: str = ""


def given(name: str, *, scalar: bool = False) -> Expr:
    """An input."""
    return Expr("input", (name, () if scalar else ""))


def applied(op: str, *of: Any, attrs: tuple[Attr, ...] = ()) -> Expr:
    """An operator."""
    return Expr(op, attrs, of)


def piece(axis: int, index: int, of: Any) -> Expr:
    """One of the two results of a split."""
    return Expr("split", (axis, index, ()), (of,))


def convolution(image: Any, kernel: Any, *, relu: bool, unit: bool) -> Expr:
    """A convolution, with stride 1 and padding by half if ``unit``; shapes say its groups."""
    made = Expr("conv", (UNIT if unit else ANY, 0), (image, kernel))
    return Expr("relu", (), (made,)) if relu else made
