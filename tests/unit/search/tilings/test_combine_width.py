"""Combine kernels: values per thread, and shapes of a tile."""

from __future__ import annotations

from dataclasses import replace

import several_kernels

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.search.rank.kernel_choices import sharing_us
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.space.splits import split_dims
from mirage_py.search.tilings.roles import grid_tiles, roles_of
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import H200
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.split_dim import outer_dim


def split() -> Plan:
    return replace(several_kernels.plan("split_attention"), backend="cuda")


def splits_of(plan: Plan) -> tuple[str, ...]:
    return tuple(outer_dim(d) for d in split_dims(plan.ugraph.program))


def tiled(plan: Plan, number: int, **tiles: int) -> TiledKernel:
    block = plan.ugraph.kernels[number]
    assert isinstance(block, BlockGraph)
    grid = tuple(replace(a, tile=tiles.get(a.dim, a.tile)) for a in block.grid)
    block = replace(block, grid=grid)
    return TiledKernel(Tiling(plan.ugraph.scope, block))


def test_a_kernel_that_multiplies_or_makes_the_parts_is_as_the_model_says():
    plan = split()
    assert sharing_us(tiled(plan, 0), LaunchConfig(4), splits_of(plan)) == 0.0


def test_eight_values_for_each_thread_are_best():
    plan = split()
    kernel = tiled(plan, 1)
    reads = max(kernel.elements[n] for n, _ in kernel.block.loads())
    best = max(1, reads // (32 * 8))
    times = {
        w: sharing_us(kernel, LaunchConfig(w), splits_of(plan)) for w in (best, 2 * best, 4 * best)
    }
    assert min(times, key=times.__getitem__) == best
    assert times[4 * best] > times[2 * best] > times[best]


def test_a_row_counts_more_than_its_halves_and_four_rows_more_than_one():
    plan = split()
    eight, one = tiled(plan, 1, q=8), tiled(plan, 1, q=1)
    reads = {k: max(k.elements[n] for n, _ in k.block.loads()) for k in (eight, one)}
    assert reads[eight] == 8 * reads[one]
    best = reads[one] // (32 * 8)
    long = sharing_us(one, LaunchConfig(best), splits_of(plan))
    assert 0.0 == sharing_us(eight, LaunchConfig(8 * best), splits_of(plan)) < long < 0.01


def test_narrow_tiles_of_float32():
    """64 bytes are 16 floats and 32 halves."""
    plan = split()
    scope = plan.ugraph.scope
    first, second = (k for k in plan.ugraph.kernels if isinstance(k, BlockGraph))
    roles = roles_of(scope, second, splits_of(plan), "cuda")
    assert roles.least == 16
    assert roles_of(scope, first, splits_of(plan), "cuda").least == 32
    assert roles_of(scope, second, splits_of(plan), "triton").least == 32
    assert min(grid_tiles(scope, replace(roles, fast=("e",)), "e")) == 16


def test_neighbours_of_another_shape():
    plan = split()
    second = plan.ugraph.kernels[1]
    assert isinstance(second, BlockGraph)
    assert [(a.dim, a.tile) for a in second.grid] == [("q", 8), ("h", 1)]
    grids = [
        k.grid for p in neighbours(plan, H200) if isinstance(k := p.ugraph.kernels[-1], BlockGraph)
    ]
    assert [("q", 4), ("h", 2)] in [[(a.dim, a.tile) for a in grid] for grid in grids]
