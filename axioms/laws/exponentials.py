"""Laws of exponentials and logarithms."""

from __future__ import annotations

from mirage_py.axioms.laws.notation import exp, log, one, x, y
from mirage_py.axioms.terms.law import Law

PAPER = "Mirage (OSDI'25), A_eq"

LAWS = (
    Law(
        "exponentials.multiply",
        exp(x) * exp(y),
        exp(x + y),
        cites=PAPER,
        why="one exponential instead of two, and no overflow between them",
    ),
    Law("exponentials.divide", exp(x) / exp(y), exp(x - y), why="as for the product"),
    Law(
        "exponentials.distribute",
        exp(x + y),
        exp(x) * exp(y),
        ring="expanded",
        cites=PAPER,
        why="a shift leaves a softmax, a decay a scan; the float screen decides if it is safe",
    ),
    Law("exponentials.distribute_difference", exp(x - y), exp(x) / exp(y), ring="expanded"),
    Law("exponentials.negative", exp(-x), one / exp(x), ring="expanded"),
    Law(
        "exponentials.log_of_product",
        log(x * y),
        log(x) + log(y),
        disabled="over a finite field log is a keyed random function: the sides differ there",
    ),
    Law(
        "exponentials.log_of_exp",
        log(exp(x)),
        x,
        disabled="over a finite field log is a keyed random function: it does not undo exp",
    ),
)
