"""Sharing: a value that is read at other indices is stored once, instead of copied with all it is
computed from.

A view of a small value copies it: the copies fuse with what reads them. Of a network each view
would copy all layers so far. There the value becomes a tensor in memory that the view reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.operators import CONTRACT, LEAF, operator

# As many operators as a program has that is searched whole: a larger one is cut anyway.
_COPIED = 24


def substituted(builder: ProgramBuilder, node: int, mapping: Mapping[str, IndexExpr]) -> int:
    """The node at other indices: dimension d becomes ``mapping[d]``.

    At most so many operators are copied as are searched at once; what is behind them is stored.
    """
    moved = [d for d, e in mapping.items() if e != ix.dim(d)]
    at = _store_of(builder, node, moved)
    if at is not None:
        builder.stored(at)
    return builder.substitute(node, mapping)


def _store_of(builder: ProgramBuilder, node: int, moved: Collection[str]) -> int | None:
    """The value to be stored before a substitution of the dimensions ``moved``, if it is large.

    It is the last one, going back from the node, that all of the copy goes through, with no
    contraction on the way: the residual stream in front of a norm, or the result of a product.
    """
    found: int | None = None
    waiting: list[int] = []
    seen: dict[int, None] = {}

    def visit(members: Sequence[int]) -> None:
        for member in members:
            at = builder.nodes[member]
            is_work = operator(at.op).kind != LEAF and not builder.is_stored(member)
            if is_work and member not in seen and any(d in moved for d in at.dims):
                seen[member] = None
                heappush(waiting, -member)

    visit([node])
    contracted = False
    while waiting:
        if len(seen) > _COPIED:
            return node if found is None else found
        member = -heappop(waiting)
        if not waiting and not contracted:
            found = member
        contracted = contracted or operator(builder.nodes[member].op).kind == CONTRACT
        visit(builder.nodes[member].args)
    return None
