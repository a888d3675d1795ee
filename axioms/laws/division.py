"""Laws of division. None of them cancels: x/x = 1 would make everything a part of everything.

A division by a size is a mean. Nothing is gained by moving it, and every place to which it could
move would double the table, so such a division stays where it is.
"""

from __future__ import annotations

from mirage_py.axioms.laws.notation import x, y, z
from mirage_py.axioms.terms.law import Law, NotSize, Within

PAPER = "Mirage (OSDI'25), A_eq"

LAWS = (
    Law("division.add", x / z + y / z, (x + y) / z, cites=PAPER),
    Law("division.subtract", x / z - y / z, (x - y) / z),
    Law(
        "division.distribute",
        (x + y) / z,
        x / z + y / z,
        ring="expanded",
        cites=PAPER,
    ),
    Law("division.distribute_difference", (x - y) / z, x / z - y / z, ring="expanded"),
    Law(
        "division.multiply",
        x * (y / z),
        (x * y) / z,
        only=(NotSize("z"),),
        cites=PAPER,
        why="moves the norm of RMSNorm, or the row sum of a softmax, behind the matmul",
    ),
    Law(
        "division.of_factor",
        (x * y) / z,
        x * (y / z),
        only=(NotSize("z"), Within("z", "y")),
        cites=PAPER,
        why="and back; a gain divided by the norms of all rows would only be a larger gain",
    ),
    Law(
        "division.twice",
        (x / y) / z,
        x / (y * z),
        both_ways=True,
        only=(NotSize("y"), NotSize("z")),
        cites=PAPER,
    ),
    Law("division.by_quotient", x / (y / z), (x * z) / y, why="one division instead of two"),
    Law("division.negative", (-x) / y, -(x / y), why="negation moves outwards"),
    Law("division.by_negative", x / (-y), -(x / y), why="negation moves outwards"),
)
