"""Logic on conditions of indices, simplified as it is built."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import Predicate

TRUE = ix.compare("eq", 0, 0)
FALSE = ix.compare("ne", 0, 0)

# More than any dimension has.
_UNBOUNDED: defaultdict[str, int] = defaultdict(lambda: 1 << 62)
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


def decided(predicate: Predicate, sizes: Mapping[str, int] = _UNBOUNDED) -> bool | None:
    """Whether it holds at every point, or at none, whatever the sizes of the dimensions if none are
    given; None: that depends.
    """
    if predicate.exprs:
        left, right = predicate.exprs
        low, high = ix.add(left, ix.mul(right, -1)).bounds(sizes)
        return _decided(predicate.op, low, high)
    known = [decided(a, sizes) for a in predicate.args]
    if predicate.op == "not":
        return None if known[0] is None else not known[0]
    absorbing = predicate.op == "or"
    if absorbing in known:
        return absorbing
    return None if None in known else not absorbing


def _decided(op: str, low: int, high: int) -> bool | None:
    """Whether a value from ``low`` to ``high`` compares so with 0."""
    if op in ("ge", "le", "ne"):
        opposite = _decided(_NEGATED[op], low, high)
        return None if opposite is None else not opposite
    always, never = {
        "lt": (high < 0, low >= 0),
        "gt": (low > 0, high <= 0),
        "eq": (low == high == 0, low > 0 or high < 0),
    }[op]
    return True if always else False if never else None


def _joined(
    op: str, left: Predicate, right: Predicate, *, neutral: Predicate, absorbing: Predicate
) -> Predicate:
    if absorbing in (left, right):
        return absorbing
    if left in (neutral, right):
        return right
    return left if right == neutral else Predicate(op, args=(left, right))
