"""Addition, subtraction and negation.

Negation only ever moves outwards: letting it move back in would double every product for nothing.
"""

from __future__ import annotations

from mirage_py.axioms.law import Law
from mirage_py.axioms.notation import two, x, y, z
from mirage_py.axioms.term import apply

PAPER = "Mirage (OSDI'25), A_eq"

LAWS = (
    Law("addition.commutes", x + y, y + x, cites=PAPER),
    Law("addition.associates", x + (y + z), (x + y) + z, both_ways=True, cites=PAPER),
    Law(
        "addition.subtract",
        x - y,
        x + (-y),
        both_ways=True,
        why="a difference takes part in every law of sums",
    ),
    Law("addition.negate_twice", apply("neg", -x), x),
    Law("addition.negatives", (-x) + (-y), -(x + y), why="one negation instead of two"),
    Law("addition.negate_difference", -(x - y), y - x, why="no negation instead of one"),
    Law(
        "addition.negate_sum",
        -(x + y),
        (-x) + (-y),
        ring="expanded",
        why="lets a sum under a negation come apart, as (x - mean)^2 must",
    ),
    Law(
        "addition.double",
        x + x,
        two * x,
        ring="expanded",
        why="joins the two middle terms of an expanded square with the way people write them",
    ),
)
