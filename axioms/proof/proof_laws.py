"""Laws that only proofs use, beside those of the search.

The laws of selections undo what is done to a kernel after the search. The others cancel: in the
search they would make everything a part of everything, but a proof has both its ends. They join the
two-pass with the one-pass variance, sum((x - m)^2) = sum(x^2) - m sum(x), where m is the mean.
"""

from __future__ import annotations

from mirage_py.axioms.laws.notation import exp, one, where, x, y, z, zero
from mirage_py.axioms.laws.registry import all_laws
from mirage_py.axioms.terms.law import Law, NotSize
from mirage_py.axioms.terms.term import COMPARISONS
from mirage_py.ugraph.operators import named

SELECTIONS = (
    Law(
        "selection.exp",
        exp(where(x, y, z)) * x,
        exp(y) * x,
        why="an exponent that is lowered where the mask is 0: it must not overflow there",
    ),
    Law(
        "selection.product",
        where(x, y, z) * x,
        y * x,
        why="where x is 0 the product is 0, elsewhere y is selected",
    ),
)

CANCELLATIONS = (
    Law(
        "cancellation.size",
        (x / y) * y,
        x,
        sizes=("y",),
        why="a mean summed again; no other divisor is known not to be 0",
    ),
    Law("cancellation.difference", x - x, zero),
    Law("cancellation.product", x * zero, zero),
    Law(
        "cancellation.mean",
        (x * z) / y,
        x * (z / y),
        sizes=("y",),
        only=(NotSize("x"), NotSize("z")),
        why="the search divides a mean where it stands",
    ),
)

TIDYING = (Law("exponentials.of_zero", exp(zero), one, why="what is left of a shift that is 0"),)

# Read backwards they take roots of factors that may be negative where the product is not, or divide
# by what may be 0.
ONE_WAY = ("roots.multiply", "roots.divide", "division.by_quotient")

# Operators that have no value for some numbers.
PARTIAL = tuple(sorted(named(lambda o: o.is_partial)))

# By law and direction, what stands in a branch that is not always taken, and is computed for all
# numbers after the step: where(z != 0, y / z, 0) has a value for z = 0, (z != 0) * (y / z) none.
UNGUARDED = {
    **{(f"masks.{op}_is_factor", True): ("z",) for op in COMPARISONS},
    ("masks.multiply", False): ("z",),
    ("masks.divide", False): ("z",),
    **{(law.name, True): ("y",) for law in SELECTIONS},
}

# Read backwards these divide by a variable that a branch that is not always taken divided by.
DIVISORS = {"masks.divide": "z"}

PROOF_LAWS = (*SELECTIONS, *CANCELLATIONS, *TIDYING)


def laws_of_proofs() -> tuple[Law, ...]:
    """Every law that a derivation may name."""
    return (*(law for law in all_laws() if not law.disabled), *PROOF_LAWS)
