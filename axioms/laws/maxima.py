"""Laws of maxima and minima.

Over a finite field they follow a keyed random total order: the laws of an order hold there, and
negation turns it around; those that tie it to addition do not.
"""

from __future__ import annotations

from mirage_py.axioms.laws.notation import largest, maximum, minimum, x, y, z
from mirage_py.axioms.terms.law import Independent, Law

Y_FREE = (Independent("y", "i"),)

LAWS = (
    Law("maxima.commute", maximum(x, y), maximum(y, x)),
    Law("maxima.associate", maximum(x, maximum(y, z)), maximum(maximum(x, y), z), both_ways=True),
    Law("maxima.idempotent", maximum(x, x), x),
    Law("maxima.minimum_commutes", minimum(x, y), minimum(y, x)),
    Law(
        "maxima.minimum_associates",
        minimum(x, minimum(y, z)),
        minimum(minimum(x, y), z),
        both_ways=True,
    ),
    Law("maxima.minimum_idempotent", minimum(x, x), x),
    Law("maxima.axes_commute", largest("i", largest("j", x)), largest("j", largest("i", x))),
    Law(
        "maxima.merge",
        maximum(largest("i", x), largest("i", y)),
        largest("i", maximum(x, y)),
        why="one reduction instead of two",
    ),
    Law(
        "maxima.distribute",
        largest("i", maximum(x, y)),
        maximum(largest("i", x), largest("i", y)),
        ring="expanded",
    ),
    Law(
        "maxima.leave",
        largest("i", maximum(x, y)),
        maximum(largest("i", x), y),
        both_ways=True,
        when=Y_FREE,
    ),
    Law("maxima.constant", largest("i", y), y, when=Y_FREE),
    Law(
        "maxima.shift",
        largest("i", x + y),
        largest("i", x) + y,
        when=Y_FREE,
        disabled="true of numbers; the order of a finite field knows nothing of addition",
    ),
    Law("maxima.duality", -maximum(-x, -y), minimum(x, y)),
)
