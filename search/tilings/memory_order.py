"""Memory order: whether the blocks of a grid, last axis fastest, go through memory in sequence."""

from __future__ import annotations

from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph


def is_row_major(scope: Program, block: BlockGraph, least_bytes: float) -> bool:
    """Whether in every larger tensor no axis of the grid has shorter steps than one behind it, and
    the first has longer ones than the last; axes of one block do not count.
    """
    dims = [a.dim for a in block.grid if (a.tile or 1) < scope.sizes[a.dim]]
    nodes = (n for _, n in (*block.loads(), *block.stores()))
    accesses = {n.access for n in nodes if scope.tensors[n.access.tensor].bytes > least_bytes}
    steps = [[_step(scope, access, d) for d in dims] for access in accesses]
    return bool(steps) and all(s == sorted(s, reverse=True) and s[0] > s[-1] for s in steps if s)


def _step(scope: Program, access: Access, dim: str) -> float:
    """Elements in memory from one position along a dimension to the next, on average; 0 where what
    is read is looked up.
    """
    if any(e.tensors() for e in access.index):
        return 0.0
    strides = scope.tensors[access.tensor].element_strides
    origin = dict.fromkeys(scope.dim_names, 0)
    last = scope.sizes[dim] - 1

    def offset(at: dict[str, int]) -> int:
        return sum(e.evaluate(at) * s for e, s in zip(access.index, strides, strict=True))

    return (offset({**origin, dim: last}) - offset(origin)) / max(1, last)
