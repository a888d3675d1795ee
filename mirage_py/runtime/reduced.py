"""A plan at a reduced size: the same kernels with the same tiles, over fewer of them."""

from __future__ import annotations

from dataclasses import replace

from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import BlockGraph, Kernel
from mirage_py.verify.shrink import fixed_dims, shrink, shrink_ugraph

# Whole tiles of a dimension, besides the tail: enough for a first, a middle and a last iteration.
_WHOLE_TILES = 2


def reduced(program: Program, plan: Plan) -> tuple[Program, Plan]:
    """``program`` and ``plan``, which computes it, at a size for Triton's interpreter.

    A dimension that is cut into tiles keeps two of the largest ones and its tail; the others, and
    those that an index divides, keep their size. Tensors become row-major.

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
    fixed = fixed_dims(own, plan.ugraph.kernels) + fixed_dims(program)
    largest: dict[str, int] = {}
    for block in plan.ugraph.kernels:
        if not isinstance(block, BlockGraph):
            continue
        tiles = [(a.dim, a.tile) for a in block.grid]
        tiles += [(s.loop, s.tile) for s in block.sections if s.loop is not None]
        for dim, tile in tiles:
            largest[dim] = max(largest.get(dim, 1), tile or 1)
    extents: dict[str, int] = {}
    for dim, size in own.sizes.items():
        if dim in largest and dim not in fixed:
            tile = largest[dim]
            extents[dim] = min(size, _WHOLE_TILES * tile + size % tile)
    return extents


def _with_tiles(small: Kernel, old: Kernel) -> Kernel:
    """The shrunk block with the tiles it had; no tile needs to fit, tails are masked."""
    if not isinstance(small, BlockGraph) or not isinstance(old, BlockGraph):
        return small
    sections = zip(small.sections, old.sections, strict=True)
    return replace(
        small, grid=old.grid, sections=tuple(replace(s, tile=o.tile) for s, o in sections)
    )
