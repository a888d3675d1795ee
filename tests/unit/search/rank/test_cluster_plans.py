"""Plans of families with clusters: for CUDA alone, on targets that have them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import clusters
import pytest
from families import instances
from unit.search.kernels import FACTORED, of_kind

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.clusters.clusters import is_clustered
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.family import CLUSTER
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.targets import A100, ALL_TARGETS, H200
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

PROGRAMS = {"attention": clusters.attention_program(), "lora": clusters.lora_program()}


@cache
def safe(name: str) -> tuple[UGraph, ...]:
    """The stabilised µGraphs of the families with clusters, and of some others."""
    found = search(normalise(PROGRAMS[name]), limits=replace(FACTORED, max_cluster_blocks=16))
    kinds = dict.fromkeys(f.kind for f in found.families)
    few = [f for k in kinds for f in of_kind(found, k)[: 4 if k == CLUSTER else 1]]
    every = (stabilized(f.ugraph) for f in few)
    return tuple(s.ugraph for s in every if not s.faults)


def test_targets_with_clusters():
    assert {t.name: t.max_cluster_blocks for t in ALL_TARGETS} == {
        "a100": 1, "h100": 16, "h200": 16, "b200": 16
    }  # fmt: skip


def test_plans_for_triton_have_none():
    plans = rank(safe("attention"), H200, 20)
    assert {i.plan.backend for i in plans} == {"triton"}
    assert not any(is_clustered(i.plan.ugraph) for i in plans)


@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_for_cuda(name):
    plans = rank(safe(name), H200, 24, "cuda")
    assert {i.plan.backend for i in plans} == {"cuda"}
    assert {i.kind for i in plans} >= {"cluster", "one kernel", "split"}
    for instance in plans:
        validate_ugraph(instance.plan.ugraph)
        for block, options in zip(instance.plan.ugraph.kernels, instance.plan.options, strict=True):
            if not isinstance(block, BlockGraph):
                continue
            multiplies = any(n.op == "matmul" for n in block.nodes)
            assert options.num_warps in ((4, 8) if multiplies else (1, 2, 4, 8))
        if instance.kind != "cluster":
            continue
        (block,) = instance.plan.ugraph.kernels
        tiling = Tiling(instance.plan.ugraph.program, block)
        assert tiling.cluster_blocks in (2, 3, 4, 5, 6, 7, 8, 16)
        assert block.grid[0].cluster
        assert instance.name.endswith("cluster: one kernel")
    tilings = {(i.plan.ugraph.digest, i.plan.options) for i in plans}
    assert len(tilings) == len(plans)


def test_an_a100_has_no_clusters():
    plans = rank(safe("attention"), A100, 24, "cuda")
    assert plans
    assert not any(is_clustered(i.plan.ugraph) for i in plans)


def test_auto_has_both_back_ends():
    plans = rank(safe("attention"), H200, 24, "auto")
    assert len(plans) == 24
    assert {i.plan.backend for i in plans} == {"triton", "cuda"}
    times = [i.estimate.time_us for i in plans]
    assert times == sorted(times)


def test_instances_of_a_family_with_clusters_are_for_cuda():
    found = instances(clusters.cluster_rms_norm_matmul().ugraph, H200, 5)
    assert {i.plan.backend for i in found} == {"cuda"}


def test_the_model_charges_for_the_exchange():
    plan = clusters.cluster_attention(keys=4096, parts=8)
    (one,) = PlanModel(plan, H200).predicted().kernels
    grid = tuple(replace(a, cluster=False) for a in plan.ugraph.kernels[0].grid)
    block = replace(plan.ugraph.kernels[0], grid=grid)
    free = replace(plan, ugraph=replace(plan.ugraph, kernels=(block,)))
    (other,) = PlanModel(free, H200).predicted().kernels
    assert one.time_us > other.time_us + 0.5
    # Sums and products of 16 rows in float32, with little else in shared memory after the loop.
    wide = clusters.cluster_attention(keys=4096, parts=8, tiles=(128, 16, 64), num_stages=1)
    (large,) = PlanModel(wide, H200).predicted().kernels
    assert large.footprint.smem_bytes >= 4 * 128 * 64


def test_neighbours_keep_the_back_end_and_the_cluster():
    plan = clusters.cluster_attention(keys=4096, parts=16)
    near = list(neighbours(plan, H200))
    assert near
    assert {p.backend for p in near} == {"cuda"}
    assert all(is_clustered(p.ugraph) for p in near)
    assert {p.options[0].num_warps for p in near} == {4, 8}
    assert not any(p.options[0].block_order for p in near)
    splits = {p.ugraph.program.sizes["s_part"] for p in near}
    assert splits == {8, 16}
