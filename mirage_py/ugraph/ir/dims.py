"""The shape rule: which named dimensions a node's value has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.operators import CONTRACT, EFFECT, LEAF, REDUCE, STATE, operator


def node_dims(
    node: Node, operands: Sequence[Iterable[str]], order: Iterable[str]
) -> tuple[str, ...]:
    """The dimensions a node must have, in ``order``, from those of its operands.

    A store has the dimensions of its indices: the points that it writes. They contain those of the
    value, which is repeated along the others; but for a ``store_add``, which sums over the rest.
    """
    kind = operator(node.op).kind
    found: dict[str, None] = {}
    if kind in (LEAF, EFFECT):
        if isinstance(node.attr, Access | IndexExpr | Predicate):
            found.update(dict.fromkeys(node.attr.dims()))
    elif kind == STATE:
        found.update(dict.fromkeys(operands[0]))
    else:
        for dims in operands:
            found.update(dict.fromkeys(dims))
        if kind in (REDUCE, CONTRACT):
            for d in node.reduced:
                found.pop(d, None)
    return tuple(d for d in order if d in found)
