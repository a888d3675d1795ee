"""One step from a plan: every choice has its neighbours, and all of them are plans that work."""

from __future__ import annotations

from dataclasses import replace

import pytest
import several_kernels
from plans import rms_plan

from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.tilings.hopper_paths import other_paths
from mirage_py.targets import target
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

H200 = target("h200")


def block_of(plan: Plan, number: int = 0) -> BlockGraph:
    block = plan.ugraph.kernels[number]
    assert isinstance(block, BlockGraph)
    return block


def rms() -> Plan:
    return Plan(rms_plan(b=64, d=512, n=512).ugraph, (LaunchConfig(4, (3, 3)),))


def test_each_choice_has_a_neighbour_on_both_sides():
    plan = rms()
    found = list(neighbours(plan, H200))
    block = block_of(plan)
    tiles = {a.dim: a.tile for a in block.grid}
    grids = [{a.dim: a.tile for a in block_of(p).grid} for p in found]
    assert {g["n"] for g in grids} >= {tiles["n"] // 2, tiles["n"] * 2}
    assert {p.options[0].num_warps for p in found} == {2, 4, 8}
    assert {p.options[0].num_stages[0] for p in found} == {2, 3, 4}
    assert {p.options[0].reversed_axes for p in found} == {False, True}


def test_a_step_changes_one_thing():
    plan = rms()
    for found in neighbours(plan, H200):
        block, before = block_of(found), block_of(plan)
        changed = [
            block.grid != before.grid,
            block.sections != before.sections,
            found.options[0].num_warps != plan.options[0].num_warps,
            found.options[0].num_stages != plan.options[0].num_stages,
            found.options[0].flags != plan.options[0].flags,
        ]
        assert sum(changed) == 1
        assert block.nodes == before.nodes


def test_the_plan_is_no_neighbour_of_itself_and_none_comes_twice():
    plan = several_kernels.plan("split_attention")
    found = list(neighbours(plan, H200))
    assert plan not in found
    assert len(set(found)) == len(found)


def test_what_does_not_fit_the_target_is_left_out():
    small = replace(H200, smem_per_block_bytes=20_000)
    assert len(list(neighbours(rms(), small))) < len(list(neighbours(rms(), H200)))


def test_other_numbers_of_parts_are_neighbours_too():
    plan = several_kernels.plan("split_matmul_added")
    counts = {p.ugraph.program.sizes["d_part"] for p in neighbours(plan, H200)}
    assert counts > {plan.ugraph.program.sizes["d_part"]}


@pytest.mark.parametrize("name", ["split_attention", "residual_gated", "library_epilogue"])
def test_every_neighbour_can_be_emitted(name):
    for found in neighbours(several_kernels.plan(name), H200):
        assert emit_kernels(found)


def test_tiles_by_the_copy_engine_and_back():
    plan = rms()
    (fetched,) = (p for p in neighbours(plan, H200) if p.options[0].descriptors)
    (back,) = (p for p in neighbours(fetched, H200) if not p.options[0].descriptors)
    assert back == plan


def test_no_copy_engine_before_sm_90():
    assert not any(p.options[0].descriptors for p in neighbours(rms(), target("a100")))


def split_attention() -> Plan:
    plan = several_kernels.plan("split_attention")
    return replace(plan, backend="cuda")


def test_two_cuda_kernels_and_one_whose_blocks_form_clusters():
    plan = split_attention()
    (joined,) = [p for p in neighbours(plan, H200) if len(p.ugraph.kernels) == 1]
    block = block_of(joined)
    assert block.cluster_dims == ("s_part",)
    assert [(a.dim, a.tile) for a in block.grid] == [(a.dim, a.tile) for a in block_of(plan).grid]
    assert joined.options == plan.options[:1]
    assert block.threads


def test_no_clusters_for_triton_nor_where_a_gpu_has_none():
    assert all(len(p.ugraph.kernels) == 2 for p in neighbours(split_attention(), target("a100")))
    triton = replace(split_attention(), backend="triton")
    assert all(len(p.ugraph.kernels) == 2 for p in neighbours(triton, H200))


def test_other_paths_of_cuda_kernels_on_hopper_alone():
    def paths(gpu: str) -> set[tuple[str, ...]]:
        plan = split_attention()
        first = block_of(plan)
        near = [p for p in neighbours(plan, target(gpu)) if len(p.ugraph.kernels) == 2]
        same = [p for p in near if block_of(p) == first and p.options[1:] == plan.options[1:]]
        names = {f for f, _ in plan.options[0].flags}
        return {tuple(f for f, _ in p.options[0].flags if f not in names) for p in same}

    assert {("products",), ("copies",), ("producer",)} <= paths("h200")
    assert not {("products",), ("copies",), ("producer",)} & paths("a100")


@pytest.mark.parametrize("gpu", ["h200", "a100"])
def test_lazy_rescaling_where_sums_are_rescaled(gpu):
    for plan, there in ((split_attention(), True), (rms(), False)):
        paths = other_paths(block_of(plan), plan.options[0], target(gpu))
        found = {o.rescaling for o in paths}
        assert found == ({None, "lazy", "optimistic"} if there else {None})


@pytest.mark.parametrize(
    ("warps", "overlap", "there"), [(8, "on", 1), (8, "across", 1), (8, "", 0), (4, "on", 0)]
)
def test_turns_where_products_of_two_groups_overlap(warps, overlap, there):
    plan = split_attention()
    options = replace(plan.options[0], num_warps=warps).with_flag("overlap", overlap)
    paths = list(other_paths(block_of(plan), options, H200))
    assert sum(o.ping_pong for o in paths) == there


def test_both_ways_to_overlap_and_none_are_steps_of_one_another():
    plan = split_attention()
    fetched = plan.options[0].with_flag("producer", "warps")
    for mode in ("", "on", "across"):
        options = fetched.with_flag("overlap", mode)
        near = {o.overlap for o in other_paths(block_of(plan), options, H200)}
        assert near == {None, "on", "across"}


def test_all_that_runs_ahead_is_one_step_for_kernels_that_are_fed():
    plan = split_attention()
    plain = replace(plan.options[0], num_warps=8)
    fed = plain.with_flag("producer", "warps")

    def steps(options: LaunchConfig, blocks: int, is_uneven: bool = False) -> list[LaunchConfig]:
        found = other_paths(block_of(plan), options, H200, blocks=blocks, is_uneven=is_uneven)
        return list(found)

    everything = {
        "overlap": "across", "rescaling": "lazy", "turns": "on", "stores": "lanes",
        "order": "longest", "blocks": "132",
    }  # fmt: skip
    whole = fed
    for name, value in everything.items():
        whole = whole.with_flag(name, value)
    assert whole in steps(fed, 133, is_uneven=True)
    assert whole not in steps(whole, 133, is_uneven=True)
    assert whole not in steps(plain, 133, is_uneven=True)
    assert whole.with_flag("blocks", "").with_flag("order", "") in steps(fed, 132)
    # From there each choice leads back alone.
    near = [o for o in steps(whole, 133, is_uneven=True) if len(o.flags) == len(whole.flags) - 1]
    gone = {name for name in everything if whole.with_flag(name, "") in near}
    assert gone == {*everything} - {"order"}


def test_blocks_stay_where_there_are_more_than_the_gpu_holds_at_once():
    plan = split_attention()
    for warps, blocks, there in ((8, 133, 1), (8, 132, 0), (4, 133, 0)):
        options = replace(plan.options[0], num_warps=warps).with_flag("producer", "warps")
        paths = other_paths(block_of(plan), options, H200, blocks=blocks)
        alone = [o for o in paths if o == options.with_flag("blocks", "132")]
        assert len(alone) == there


def test_the_first_cuda_kernel_may_start_early_or_not():
    def starts(plan: Plan, gpu: str) -> set[bool]:
        first = {p.options[0].early_start for p in neighbours(plan, target(gpu))}
        return first - {plan.options[0].early_start}

    plan = split_attention()
    early = replace(plan, options=(plan.options[0].with_flag("start", "early"), plan.options[1]))
    assert starts(plan, "h200") == {True}
    assert starts(early, "h200") == {False}
    assert starts(plan, "a100") == set()
    assert starts(replace(plan, backend="triton"), "h200") == set()


@pytest.mark.parametrize("way", ["", "lanes", "rows"])
def test_results_are_stored_in_three_ways(way: str):
    plan = split_attention()
    options = plan.options[0].with_flag("stores", way)
    near = {o.stores for o in other_paths(block_of(plan), options, H200)}
    assert near == {None, "lanes", "rows"}
