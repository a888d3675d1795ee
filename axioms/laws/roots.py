"""Laws of square roots.

Over a finite field sqrt is a power: it keeps products, but its square is x for half of the values
and -x for the others.
"""

from __future__ import annotations

from mirage_py.axioms.laws.notation import one, rsqrt, sqrt, x, y
from mirage_py.axioms.terms.law import Law

PAPER = "Mirage (OSDI'25), A_eq"

LAWS = (
    Law(
        "roots.multiply",
        sqrt(x) * sqrt(y),
        sqrt(x * y),
        cites=PAPER,
        why="the way back would take roots of negative factors",
    ),
    Law("roots.divide", sqrt(x) / sqrt(y), sqrt(x / y), cites=PAPER),
    Law("roots.reciprocal", rsqrt(x), one / sqrt(x), both_ways=True),
    Law(
        "roots.multiply_reciprocal",
        y * rsqrt(x),
        y / sqrt(x),
        why="a norm written with rsqrt gets the laws of division; emitters pick the instruction",
    ),
    Law(
        "roots.square",
        sqrt(x) * sqrt(x),
        x,
        disabled="fails over a finite field where x is no square; and it cancels",
    ),
)
