"""Laws of sums over an axis.

A sum over a dimension is the nested sum over its axes, so splitting a sum over a grid, a loop or
tiles needs no law, whatever the extents. A mean is a sum divided by a size.
"""

from __future__ import annotations

from mirage_py.axioms.laws.notation import total, x, y
from mirage_py.axioms.terms.law import Independent, Law, NotSize, Within
from mirage_py.axioms.terms.term import size

PAPER = "Mirage (OSDI'25), A_eq"
Y_FREE = (Independent("y", "i"),)

LAWS = (
    Law(
        "sums.commute",
        total("i", total("j", x)),
        total("j", total("i", x)),
        cites=PAPER,
        why="reduce over the loop first or over the tile first",
    ),
    Law("sums.add", total("i", x) + total("i", y), total("i", x + y), cites=PAPER),
    Law("sums.subtract", total("i", x) - total("i", y), total("i", x - y)),
    Law(
        "sums.distribute",
        total("i", x + y),
        total("i", x) + total("i", y),
        ring="expanded",
        cites=PAPER,
    ),
    Law(
        "sums.distribute_difference",
        total("i", x - y),
        total("i", x) - total("i", y),
        ring="expanded",
    ),
    Law("sums.negative", total("i", -x), -total("i", x), why="negation moves outwards"),
    Law(
        "sums.multiply",
        total("i", x * y),
        total("i", x) * y,
        both_ways=True,
        when=Y_FREE,
        cites=PAPER,
        why="a factor that is the same along the axis leaves the sum, or enters it",
    ),
    Law(
        "sums.divide",
        total("i", x / y),
        total("i", x) / y,
        when=Y_FREE,
        cites=PAPER,
        why="the division of a softmax is done once, after the loop",
    ),
    Law(
        "sums.divide_terms",
        total("i", x) / y,
        total("i", x / y),
        when=Y_FREE,
        only=(NotSize("y"), Within("y", "x")),
        cites=PAPER,
        why="a norm written behind a matmul can be applied to its operand; a mean stays a mean",
    ),
    Law(
        "sums.constant",
        total("i", y),
        y * size("i"),
        when=Y_FREE,
        ring="expanded",
        why="sum((x - mean)^2) needs sum(mean^2); with it a variance takes one pass",
    ),
)
