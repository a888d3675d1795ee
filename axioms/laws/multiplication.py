"""Laws of multiplication, squares, and distribution over sums.

Multiplying out pays where something leaves a sum or is shared: where the parts differ in their
axes. A polynomial of values of one shape would only take all of its partial forms.
"""

from __future__ import annotations

from mirage_py.axioms.laws.notation import square, x, y, z
from mirage_py.axioms.terms.law import Law, Uneven

PAPER = "Mirage (OSDI'25), A_eq"
UNEVEN = (Uneven(("x", "y", "z")),)

LAWS = (
    Law("multiplication.commutes", x * y, y * x, cites=PAPER),
    Law("multiplication.associates", x * (y * z), (x * y) * z, both_ways=True, cites=PAPER),
    Law(
        "multiplication.factor",
        x * z + y * z,
        (x + y) * z,
        cites=PAPER,
        why="one product instead of two; lets LoRA merge its two weights",
    ),
    Law("multiplication.factor_difference", x * z - y * z, (x - y) * z),
    Law(
        "multiplication.distribute",
        (x + y) * z,
        x * z + y * z,
        only=UNEVEN,
        ring="expanded",
        cites=PAPER,
        why="lets a bias or a mean inside a contraction leave it; makes programs of sums grow fast",
    ),
    Law(
        "multiplication.distribute_difference",
        (x - y) * z,
        x * z - y * z,
        only=UNEVEN,
        ring="expanded",
    ),
    Law("multiplication.negative", (-x) * y, -(x * y), why="negation moves outwards"),
    Law(
        "multiplication.square",
        square(x),
        x * x,
        both_ways=True,
        why="the public system cannot relate rms to a sum of squares without it",
    ),
)
