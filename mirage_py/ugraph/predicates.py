"""Logic on conditions of indices, kept in its simplest form."""

from __future__ import annotations

from mirage_py.ugraph import index as ix
from mirage_py.ugraph.index import Predicate

TRUE = ix.compare("eq", 0, 0)
FALSE = ix.compare("ne", 0, 0)

_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def negation(predicate: Predicate) -> Predicate:
    """The opposite condition, without a ``not`` where that is possible."""
    if predicate.op in _NEGATED:
        return Predicate(_NEGATED[predicate.op], predicate.exprs)
    if predicate.op == "not":
        return predicate.args[0]
    swapped = "or" if predicate.op == "and" else "and"
    return Predicate(swapped, args=tuple(negation(a) for a in predicate.args))


def conjunction(left: Predicate, right: Predicate) -> Predicate:
    """left and right, constants dropped."""
    return _joined("and", left, right, neutral=TRUE, absorbing=FALSE)


def disjunction(left: Predicate, right: Predicate) -> Predicate:
    """left or right, constants dropped."""
    return _joined("or", left, right, neutral=FALSE, absorbing=TRUE)


def _joined(
    op: str, left: Predicate, right: Predicate, *, neutral: Predicate, absorbing: Predicate
) -> Predicate:
    if absorbing in (left, right):
        return absorbing
    if left in (neutral, right):
        return right
    return left if right == neutral else Predicate(op, args=(left, right))
