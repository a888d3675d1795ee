"""The sizes of its run-time dimensions for which the kernels of a plan are valid.

A tile with an unsplit dimension holds it up to its padded extent. A dimension that is split into
tiles may have any size, as long as 31 bits reach the last element of every tensor where positions
have no more.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.checks.run_time_sizes import run_time_dims, ugraph_at_sizes
from mirage_py.ugraph.ir.node import ACCESSES
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

MAX_INT32 = 2**31 - 1


def largest_sizes(plan: Plan, limit: int) -> dict[str, int]:
    """The largest size, at most ``limit``, of each run-time dimension; any together are right."""
    dims = run_time_dims(plan)
    sizes = dict.fromkeys(dims, limit)
    for block in plan.ugraph.kernels:
        if isinstance(block, BlockGraph):
            _bound_by_tiles(Tiling(plan.ugraph.program, block, dims), sizes)
    planned = {d: plan.ugraph.program.sizes[d] for d in dims}
    if _reach(plan, planned) > MAX_INT32:
        return sizes  # positions have 64 bits
    while _reach(plan, sizes) > MAX_INT32:
        widest = max(dims, key=lambda d: sizes[d] / planned[d])
        sizes[widest] = max(planned[widest], sizes[widest] // 2)
    return sizes


def _bound_by_tiles(tiling: Tiling, sizes: dict[str, int]) -> None:
    block = tiling.block
    for number, section in enumerate(block.sections):
        used = {d for n in section.nodes for d in block.nodes[n].dims}
        used |= {d for n in section.nodes for a in block.nodes[n].args for d in block.nodes[a].dims}
        for dim in sorted(used):
            if dim in sizes and dim != section.loop and dim not in block.grid_tiles:
                sizes[dim] = min(sizes[dim], tiling.padded(dim, number))


def _reach(plan: Plan, sizes: Mapping[str, int]) -> int:
    """How far the last element that a kernel touches lies from its tensor's first."""
    ugraph = ugraph_at_sizes(plan.ugraph, sizes)
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    touched = {n.access.tensor for b in blocks for n in b.nodes if n.op in ACCESSES}
    return max((t.last_offset for t in ugraph.tensors.values() if t.name in touched), default=0)
