"""Laws that only proofs use, beside those of the search.

The laws of selections undo what is done to a kernel after the search. The others cancel: in the
search they would make everything a part of everything, but a proof has both its ends. They join the
two-pass with the one-pass variance, sum((x - m)^2) = sum(x^2) - m sum(x), where m is the mean, and
take out the shifts of exponentials, which a kernel subtracts and divides out again.
"""

from __future__ import annotations

from dataclasses import replace

from mirage_py.axioms.laws.notation import (
    exp,
    largest,
    log,
    maximum,
    minimum,
    rsqrt,
    sqrt,
    square,
    two,
    w,
    where,
    x,
    y,
    z,
    zero,
)
from mirage_py.axioms.laws.registry import all_laws
from mirage_py.axioms.terms.law import Independent, Law, NotSize
from mirage_py.axioms.terms.term import COMPARISONS, Term, apply, const
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

FREE = (Independent("y", "i"),)


def inverse(term: Term) -> Term:
    """One over a term, and 0 of 0."""
    return apply("reciprocal_no_nan", term)


# exp(y), which is never 0, leaves an expression as a factor or a divisor of all of it, and y as a
# summand. With these a shift, which is any number y, is shown to make no difference.
SHIFTS = (
    Law("shifts.cancel", (x / exp(y)) * exp(y), x),
    Law("shifts.chain", (x / exp(y)) * (exp(y) / z), x / z),
    Law("shifts.factor", (x / exp(y)) * (z * exp(y)), x * z),
    Law("shifts.quotient", (x / exp(y)) / (z / exp(y)), x / z),
    Law("shifts.product", (x / y) * z, (x * z) / y),
    Law("shifts.square", square(x / exp(y)), square(x) / exp(y * two)),
    Law("shifts.sqrt", sqrt(x / exp(y)), sqrt(x) / exp(y * const("0.5"))),
    Law("shifts.rsqrt", rsqrt(x / exp(y)), rsqrt(x) * exp(y * const("0.5"))),
    Law("shifts.reciprocal", inverse(x / exp(y)), inverse(x) * exp(y)),
    Law("shifts.power", apply("pow", x / exp(y), z), apply("pow", x, z) / exp(y * z)),
    Law("shifts.abs", apply("abs", x / exp(y)), apply("abs", x) / exp(y)),
    Law("shifts.relu", apply("relu", x / exp(y)), apply("relu", x) / exp(y)),
    Law("shifts.max", largest("i", x / exp(y)), largest("i", x) / exp(y), when=FREE),
    Law("shifts.maximum", maximum(x / exp(y), z / exp(y)), maximum(x, z) / exp(y)),
    Law("shifts.minimum", minimum(x / exp(y), z / exp(y)), minimum(x, z) / exp(y)),
    Law("shifts.where", where(w, x / exp(y), z / exp(y)), where(w, x, z) / exp(y)),
    Law("shifts.where_zero", where(w, x / exp(y), zero), where(w, x, zero) / exp(y)),
    Law("shifts.log", log(x / exp(y)), log(x) - y),
    Law("shifts.plus", (x - y) + y, x),
    Law("shifts.plus_difference", y + (x - y), x),
    Law("shifts.minus", (x - y) - (z - y), x - z),
    Law("shifts.max_minus", largest("i", x - y), largest("i", x) - y, when=FREE),
    Law("shifts.maximum_minus", maximum(x - y, z - y), maximum(x, z) - y),
    Law("shifts.minimum_minus", minimum(x - y, z - y), minimum(x, z) - y),
    Law("shifts.where_minus", where(w, x - y, z - y), where(w, x, z) - y),
)

# Of those that the search has, what takes shifts out. Here nothing has to be gained.
_HELPING = (
    *(
        "addition.double",
        "addition.subtract",
        "addition.subtract_both",
        "addition.negate_difference",
    ),
    *("addition.subtract_difference", "multiplication.distribute_difference"),
    *("multiplication.square", "multiplication.negative"),
    *("division.add", "division.subtract", "division.multiply", "division.twice"),
    *("division.negative", "sums.divide", "scalars.times_one"),
    *("exponentials.multiply", "exponentials.distribute_difference"),
)
UNSHIFTING = (
    *(replace(law, only=()) for law in all_laws() if law.name in _HELPING),
    *SHIFTS,
)

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
    **{(f"shifts.{law}", True): ("y",) for law in ("where", "where_zero", "where_minus")},
}

# Read backwards these divide by a variable that a branch that is not always taken divided by.
DIVISORS = {"masks.divide": "z"}

PROOF_LAWS = (*SELECTIONS, *CANCELLATIONS, *SHIFTS)


def laws_of_proofs() -> tuple[Law, ...]:
    """Every law that a derivation may name."""
    return (*(law for law in all_laws() if not law.disabled), *PROOF_LAWS)
