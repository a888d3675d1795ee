"""Laws of addition, subtraction and negation.

A difference has laws of its own. Written as the sum with a negative, it would bring a negative of
every term into the table, and each is a tensor that the search would look at. Negation only ever
moves outwards: letting it move back in would double every product for nothing.
"""

from __future__ import annotations

from mirage_py.axioms.laws.notation import two, x, y, z
from mirage_py.axioms.terms.law import Law
from mirage_py.axioms.terms.term import apply

PAPER = "Mirage (OSDI'25), A_eq"

LAWS = (
    Law("addition.commutes", x + y, y + x, cites=PAPER),
    Law("addition.associates", x + (y + z), (x + y) + z, both_ways=True, cites=PAPER),
    Law("addition.subtract", (x + y) - z, x + (y - z), both_ways=True),
    Law("addition.subtract_both", (x - y) - z, x - (y + z), both_ways=True),
    Law("addition.subtract_difference", x - (y - z), (x + z) - y, why="no difference inside one"),
    Law("addition.add_negative", x + (-y), x - y, why="no negation instead of one"),
    Law("addition.subtract_negative", x - (-y), x + y, why="no negation instead of one"),
    Law("addition.from_negative", (-x) - y, -(x + y), why="negation moves outwards"),
    Law("addition.negate_twice", apply("neg", -x), x),
    Law("addition.negate_difference", -(x - y), y - x, why="no negation instead of one"),
    Law(
        "addition.negate_sum",
        -(x + y),
        (-x) - y,
        ring="expanded",
        why="lets a sum under a negation come apart",
    ),
    Law(
        "addition.double",
        two * x,
        x + x,
        ring="expanded",
        why="joins a factor 2 that people write with the middle terms of an expanded square",
    ),
)
