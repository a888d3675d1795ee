"""Rows of images as one dimension: two trailing axes that always go together are flattened."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.rewrite.dims import fresh_dim, with_dims

# Power-of-two tiles cover such rows, and whole lines of the cache; of 56 elements they leave tails.
_WHOLE_TILES = 64
# Below it is the launch that takes time.
_LARGE = 1 << 18


def with_merged_rows(program: Program) -> Program:
    """``x[n, c, h, w]`` of 56 by 56 pixels is read as ``x[n, c, p // 56, p % 56]``, one run of
    memory, wherever rows are short or odd and h and w are but positions.

    Neither is reduced, masked, counted or part of another index; every tensor that has one has both
    as its last axes, one behind the other in memory.
    """
    while True:
        pair = next((p for p in permutations(program.sizes, 2) if _go_together(program, *p)), None)
        if pair is None:
            return program
        outer, inner = pair
        extent = program.sizes[inner]
        both = fresh_dim(program, f"{outer}_{inner}")
        place = ix.dim(both)
        exprs = {outer: ix.floordiv(place, extent), inner: ix.mod(place, extent)}
        program = with_dims(program, exprs, {both: program.sizes[outer] * extent})


def _go_together(program: Program, outer: str, inner: str) -> bool:
    sizes = [program.sizes[d] for d in (outer, inner)]
    if sizes[1] % _WHOLE_TILES == 0 or min(sizes) == 1:
        return False
    pair = {outer, inner}
    accesses = [(o.tensor, o.index) for o in program.outputs]
    for node in program.nodes:
        if node.op == "load":
            accesses.append((program.tensors[node.access.tensor], node.access.index))
        elif not _is_pointwise(node, pair):
            return False
    mine = [(t, index) for t, index in accesses if pair & {d for e in index for d in e.dims()}]
    large = any(tensor.elements >= _LARGE for tensor, _ in mine)
    return large and all(_ends_in(index, t, program, outer, inner) for t, index in mine)


def _is_pointwise(node: Node, pair: set[str]) -> bool:
    """Whether a value has both dimensions or none, and neither is more to it than its place. Tiles
    of matmuls are another matter: TMA takes axes as they are.
    """
    if node.op == "size":
        return str(node.attr) not in pair
    if node.op in REDUCING and pair & set(node.reduced):
        return False
    seen = pair & set(node.dims)
    named = isinstance(node.attr, IndexExpr | Predicate) or node.op in ("read", "matmul")
    return not seen or (seen == pair and not named)


def _ends_in(
    index: Sequence[IndexExpr], tensor: Tensor, program: Program, outer: str, inner: str
) -> bool:
    """Whether both are the last axes, whole, and one run of memory; and in no other."""
    if len(index) < 2 or [e.is_dim and e.name for e in index[-2:]] != [outer, inner]:
        return False
    if any(d in (outer, inner) for e in index[:-2] for d in e.dims()):
        return False
    shape = (program.sizes[outer], program.sizes[inner])
    return tensor.shape[-2:] == shape and tensor.element_strides[-2:] == (shape[1], 1)
