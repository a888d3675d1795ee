"""Sharing: a value that is read at other indices is stored once, instead of copied with all it is
computed from.

A view of a small value copies it: the copies fuse with what reads them. Of a network each view
would copy all layers so far. There the value becomes a tensor in memory that the view reads. So do
pieces of a concatenation with large matmuls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from math import prod

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.operators import CONTRACT, ELEMENTWISE, LEAF, operator

# As many operators as a program has that is searched whole: a larger one is cut anyway.
_COPIED = 24
# Operations that take longer than a launch and what it waits for (10 us on an H200), and than to
# write an element of two bytes and to read it again.
_WASTED, _OF_AN_ELEMENT = 2.0**33, 600.0


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


def store_pieces(builder: ProgramBuilder, pieces: Sequence[int], times: Sequence[float]) -> None:
    """Store pieces of a concatenation that are computed from large matmuls, where the program has
    stored values, so that it is cut anyway: in one kernel each of these would have the columns of
    all pieces, so many ``times`` its own. What several pieces have of the same tensors, as the
    halves of rotated heads, is columns of one matmul.
    """
    if not builder.has_stored:
        return
    matmuls = [_matmuls_of(builder, piece) for piece in pieces]
    for number, (piece, factor) in enumerate(zip(pieces, times, strict=True)):
        nodes = [builder.nodes[m] for m in matmuls[number]]
        dims = [{*node.dims, *node.reduced} for node in nodes]
        operations = sum(2.0 * prod(builder.sizes[d] for d in of_one) for of_one in dims)
        elements = prod(builder.sizes[d] for d in builder.nodes[piece].dims)
        if (factor - 1.0) * operations < max(_WASTED, _OF_AN_ELEMENT * elements):
            continue
        others = [m for n, found in enumerate(matmuls) if n != number for m in found]
        read = {_tensors_of(builder, m) for m in others}
        if not all(_tensors_of(builder, m) in read for m in matmuls[number]):
            builder.stored(piece)


def _matmuls_of(builder: ProgramBuilder, node: int) -> list[int]:
    """The matmuls that a value is computed from element by element, but for stored values."""
    found: list[int] = []
    seen = {node}
    waiting = [node]
    while waiting:
        place = waiting.pop()
        at = builder.nodes[place]
        if builder.is_stored(place):
            continue
        if at.op == "matmul":
            found.append(place)
        elif operator(at.op).kind == ELEMENTWISE:
            new = {*at.args} - seen
            seen |= new
            waiting += sorted(new)
    return found


def _tensors_of(builder: ProgramBuilder, node: int) -> frozenset[str]:
    nodes = (builder.nodes[n] for n in cone(builder.nodes, [node]))
    return frozenset(t for n in nodes if n.op == "load" for t in n.access.tensors)
