"""Memory order: the axes of a grid, first fastest, as blocks go through memory in sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirage_py.codegen.tiling.contiguity import mean_step
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis


def in_memory_order(scope: Program, block: BlockGraph, least_bytes: float) -> BlockGraph:
    """The block graph with those axes of its grid fastest along which blocks read the same of a
    larger tensor, which the L2 then has, and behind them the others, those with the shortest steps
    in the largest tensors first. It stays as it is where all axes are of the first kind, as in
    matmuls of two large operands.
    """
    moving = [a for a in block.split_axes if (a.tile or 1) < scope.sizes[a.dim]]
    read = _largest_first(scope, [n.access for _, n in block.loads()], least_bytes)
    written = _largest_first(scope, [n.access for _, n in block.stores()], least_bytes)
    if len(moving) < 2 or not (read or written):
        return block
    accesses = [(a, scope.tensors[a.tensor]) for a in (*read, *written)]
    steps = {
        a.dim: [mean_step(access, t, a.dim, scope.sizes[a.dim]) for access, t in accesses]
        for a in moving
    }
    shared = [a for a in moving if not all(steps[a.dim][: len(read)])]
    if len(shared) == len(moving):
        return block
    apart = sorted((a for a in moving if a not in shared), key=lambda a: steps[a.dim])
    return replace(block, grid=_with_axes(block.grid, (*shared, *apart)))


def _largest_first(scope: Program, accesses: Sequence[Access], least: float) -> list[Access]:
    """Accesses of larger tensors; of what is looked up nobody knows where it lies."""
    sizes = {a: scope.tensors[a.tensor].bytes for a in accesses}
    known = [a for a in sizes if sizes[a] > least and not any(e.tensors() for e in a.index)]
    return sorted(known, key=lambda a: -sizes[a])


def _with_axes(grid: Sequence[GridAxis], moving: Sequence[GridAxis]) -> tuple[GridAxis, ...]:
    """The grid with these axes, in their order, in the places that they have together."""
    ordered = iter(moving)
    return tuple(next(ordered) if axis in moving else axis for axis in grid)
