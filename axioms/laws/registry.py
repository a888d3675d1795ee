"""The registry of all laws, in one order. A new law is a row in its family's file; a new family is
a line here.
"""

from __future__ import annotations

from mirage_py.axioms.laws import (
    activations,
    addition,
    division,
    exponentials,
    masks,
    maxima,
    multiplication,
    roots,
    scalars,
    separation,
    sums,
)
from mirage_py.axioms.terms.law import Law, Ring

FAMILIES = (
    addition,
    multiplication,
    division,
    sums,
    separation,
    exponentials,
    roots,
    scalars,
    activations,
    maxima,
    masks,
)


def all_laws() -> tuple[Law, ...]:
    """Every law, the disabled ones included."""
    return tuple(law for family in FAMILIES for law in family.LAWS)


def laws_in_force(ring: Ring) -> tuple[Law, ...]:
    """The laws that come with a ring. The expanded ring has those of the factored one as well."""
    return tuple(law for law in all_laws() if not law.disabled and law.ring == ring)
