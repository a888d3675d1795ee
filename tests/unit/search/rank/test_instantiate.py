"""Instances: legal, within the target's limits, ranked, and deterministic."""

from __future__ import annotations

import pytest
from families import instances, stabilize
from unit.search import programs
from unit.search.kernels import in_all_rings

from mirage_py.codegen.tiling.tiles import MIN_DOT_EXTENT, Tiling
from mirage_py.search.enumerate.search import search
from mirage_py.search.model.cost_model import lower_bound_us
from mirage_py.search.rank.instantiate import diverse
from mirage_py.targets import A100, ALL_TARGETS, H200, Target
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph


def looped(ugraph: UGraph, dim: str | None = None) -> bool:
    block, *others = ugraph.kernels
    return (
        not others
        and isinstance(block, BlockGraph)
        and any(s.loop and dim in (None, s.loop) for s in block.sections)
    )


@pytest.fixture(scope="module")
def rmsnorm() -> UGraph:
    found = in_all_rings(programs.rmsnorm_matmul()).families
    return stabilize(next(f.ugraph for f in found if looped(f.ugraph)))


@pytest.mark.parametrize("target", ALL_TARGETS, ids=lambda t: t.name)
def test_instances_fit_and_are_sorted(rmsnorm: UGraph, target: Target) -> None:
    found = instances(rmsnorm, target, 50)
    times = [i.estimate.time_us for i in found]
    assert times == sorted(times)
    floor_us = lower_bound_us(rmsnorm.program, target)
    for instance in found:
        assert instance.plan.ugraph.kernels[0].is_instance  # type: ignore[union-attr]
        (kernel,) = instance.estimate.kernels
        assert kernel.footprint.smem_bytes <= target.smem_per_block_bytes
        assert kernel.footprint.registers_per_thread <= 255
        assert kernel.blocks_per_sm >= 1
        assert instance.estimate.time_us >= floor_us


def test_batch_dimensions_of_a_product_are_not_tiled() -> None:
    found = in_all_rings(programs.attention()).families
    family = stabilize(next(f.ugraph for f in found if looped(f.ugraph, "s")))
    for instance in instances(family, H200, 200):
        (block,) = instance.plan.ugraph.kernels
        assert isinstance(block, BlockGraph)
        assert block.grid_tiles["h"] == 1


def test_products_have_tensor_core_tiles(rmsnorm: UGraph) -> None:
    for instance in instances(rmsnorm, H200, 100):
        (block,) = instance.plan.ugraph.kernels
        assert isinstance(block, BlockGraph)
        tiling = Tiling(instance.plan.ugraph.program, block)
        for number, node in enumerate(block.nodes):
            if node.op == "matmul":
                assert tiling.is_dot(number)
                assert block.grid_tiles["b"] == MIN_DOT_EXTENT


def test_same_input_same_ranking(rmsnorm: UGraph) -> None:
    first = instances(rmsnorm, A100, 40)
    assert first == instances(rmsnorm, A100, 40)


def test_diverse_limits_copies_of_a_tiling(rmsnorm: UGraph) -> None:
    chosen = diverse(instances(rmsnorm, H200, 400), 40)
    tilings = [
        (b.grid, tuple(s.tile for s in b.sections), i.plan.options[0].reversed_axes)
        for i in chosen
        for b in i.plan.ugraph.kernels
        if isinstance(b, BlockGraph)
    ]
    assert len(chosen) > 20
    assert len(set(tilings)) > 8
    assert max(tilings.count(t) for t in tilings) <= 3


def test_nothing_fits_says_why() -> None:
    # All of a row of half a million stays in one block when no loop was found for it.
    program = programs.row_softmax(b=2, n=524288)
    found = search(program).families
    whole = next(f.ugraph for f in found if len(f.ugraph.kernels) == 1 and not looped(f.ugraph))
    assert instances(stabilize(whole), H200, 1) == ()
