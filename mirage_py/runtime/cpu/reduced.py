"""A plan at a reduced size: the same kernels with the same tiles, over fewer of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel
from mirage_py.verify.sizes.shrink import fixed_dims, shrink, shrink_ugraph
from mirage_py.verify.sizes.tied_dims import tied_dims

# Whole tiles of a dimension, besides the tail: enough for a first, a middle and a last iteration.
_WHOLE_TILES = 2
# Triton's interpreter runs some hundreds of small blocks a second at best. With more blocks than
# this in a kernel, one whole tile and a tail have to do.
_MOST_BLOCKS = 128


def reduced(program: Program, plan: Plan) -> tuple[Program, Plan]:
    """``program`` and ``plan``, which computes it, at a size for Triton's interpreter.

    A dimension that is cut into tiles keeps two of the largest ones and its tail, or fewer where
    that makes many blocks; the others, and those that an index divides, keep their size. Tensors
    become row-major.

    Where the plan's own program has other dimensions (a dimension is split, or two are renamed
    apart), it takes the place of ``program``: no other has the same sizes for both.
    """
    if program.dims != plan.ugraph.program.dims:
        program = plan.ugraph.program
    extents = _extents(program, plan)
    shrunk = shrink_ugraph(plan.ugraph, extents)
    kernels = [
        _with_tiles(small, old)
        for small, old in zip(shrunk.kernels, plan.ugraph.kernels, strict=True)
    ]
    ugraph = replace(shrunk, kernels=tuple(kernels))
    return shrink(program, extents), replace(plan, ugraph=ugraph)


def _extents(program: Program, plan: Plan) -> dict[str, int]:
    own = plan.ugraph.program
    kernels = plan.ugraph.in_blocks.kernels
    tied = tied_dims(own, kernels)
    fixed = tied.kept(fixed_dims(own, kernels) + fixed_dims(program))
    largest: dict[str, int] = {}
    for block in plan.ugraph.kernels:
        if not isinstance(block, BlockGraph):
            continue
        # What a cluster shares keeps its size: all of its blocks bring their parts together.
        tiles = [(a.dim, a.tile) for a in block.split_axes]
        tiles += [(s.loop, s.tile) for s in block.sections if s.loop is not None]
        for dim, tile in tiles:
            largest[dim] = max(largest.get(dim, 1), tile or 1)
    extents: dict[str, int] = {}
    for dim, size in own.sizes.items():
        if dim in largest and dim not in fixed:
            tile = largest[dim]
            extents[dim] = min(size, _WHOLE_TILES * tile + size % tile)
    # Not what a kernel sums up: one part of a sum would show nothing.
    kept = _summed(plan)
    free = [d for d in own.dim_names if d in extents and d not in kept]
    for dim in sorted(free, key=lambda d: largest[d]):
        if _most_blocks(plan, {**own.sizes, **extents}) <= _MOST_BLOCKS:
            break
        extents[dim] = min(extents[dim], largest[dim] + (largest[dim] > 1))
    for group in tied.groups:
        extents.update(dict.fromkeys(group, max(extents.get(d, own.sizes[d]) for d in group)))
    return extents


def _summed(plan: Plan) -> dict[str, None]:
    """The dimensions that some kernel reduces."""
    blocks = [k for k in plan.ugraph.kernels if isinstance(k, BlockGraph)]
    nodes = [n for b in blocks for n in b.nodes if n.op in REDUCING]
    return dict.fromkeys(d for n in nodes for d in n.reduced)


def _most_blocks(plan: Plan, sizes: Mapping[str, int]) -> int:
    """Blocks of the kernel that has most."""
    blocks = [k for k in plan.ugraph.kernels if isinstance(k, BlockGraph)]
    grids = [[-(-sizes[a.dim] // (a.tile or 1)) for a in block.grid] for block in blocks]
    return max((prod(grid) for grid in grids), default=1)


def _with_tiles(small: Kernel, old: Kernel) -> Kernel:
    """The shrunk block with the tiles it had; no tile needs to fit, tails are masked."""
    if not isinstance(small, BlockGraph) or not isinstance(old, BlockGraph):
        return small
    sections = zip(small.sections, old.sections, strict=True)
    return replace(
        small, grid=old.grid, sections=tuple(replace(s, tile=o.tile) for s, o in sections)
    )
