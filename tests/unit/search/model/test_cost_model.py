"""Predictions of single kernels: what makes them longer, and that bounds are bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import several_kernels
from families import instances
from plans import rms_plan, two_kernel_plan

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.frontend.spec import parse, parse_file
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.task import SearchLimits
from mirage_py.search.model.cost_model import KernelModel, lower_bound_us
from mirage_py.search.rank.forms import form_of
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import ALL_TARGETS, H200, Target
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, UGraph

EXAMPLES = Path(__file__).parents[4] / "examples"


def tiled(ugraph: UGraph, number: int = 0, **grid: int) -> TiledKernel:
    block = ugraph.kernels[number]
    assert isinstance(block, BlockGraph)
    axes = tuple(GridAxis(a.dim, grid.get(a.dim, a.tile)) for a in block.grid)
    block = replace(block, grid=axes)
    return TiledKernel(Tiling(ugraph.scope, block))


def only(graph: UGraph) -> BlockGraph:
    (block,) = graph.kernels
    assert isinstance(block, BlockGraph)
    return block


def looped_by(kernel: TiledKernel, tile: int) -> TiledKernel:
    sections = tuple(replace(s, tile=tile if s.loop else None) for s in kernel.block.sections)
    block = replace(kernel.block, sections=sections)
    return TiledKernel(Tiling(kernel.scope, block))


def time_us(kernel: TiledKernel, *cached: str) -> float:
    return KernelModel(kernel, H200, cached).estimate(LaunchConfig(4, (3, 3))).time_us


# A target is a row of rates: all of them for two programs, and one for each of the others.
BOUNDED = [
    pytest.param(name, target, id=f"{name}-{target.name}")
    for n, name in enumerate(several_kernels.NAMES)
    for target in (ALL_TARGETS if n < 2 else [ALL_TARGETS[n % len(ALL_TARGETS)]])
]


@pytest.mark.parametrize(("name", "target"), BOUNDED)
def test_no_plan_is_below_the_bounds(name: str, target: Target) -> None:
    graph = several_kernels.ugraph(name)
    found = instances(graph, target, 500)
    floor_us = lower_bound_us(several_kernels.program(name), target, len(graph.kernels))
    assert found[0].estimate.time_us >= floor_us
    for instance in found:
        splits = {d: n for d, n in instance.plan.ugraph.program.sizes.items() if "_part" in d}
        form = form_of(graph, target, {d.removesuffix("_part"): n for d, n in splits.items()})
        assert instance.estimate.time_us >= form.lower_bound_us(target)


def test_the_bound_counts_launches() -> None:
    program = several_kernels.program("split_rms_norm_matmul")
    assert lower_bound_us(program, H200, 3) == 3 * H200.launch_us
    # A large one waits for memory, whatever the number of kernels.
    large = rms_plan(b=16, d=4096, n=6144).ugraph.program
    moved = sum(t.bytes for t in large.tensors.values())
    assert lower_bound_us(large, H200, 2) == moved / H200.dram_bytes_per_us


def test_a_narrow_tile_wastes_what_it_loads() -> None:
    graph = two_kernel_plan(b=4096, d=4096).ugraph
    wide, narrow = tiled(graph, 1, b=16, d=128), tiled(graph, 1, b=2048, d=1)
    assert wide.elements[-1] == narrow.elements[-1]
    (section,), (other,) = wide.sections, narrow.sections
    # Two bytes of every sector of 32 are used; S is read along b.
    assert other.cache_bytes > 10 * section.cache_bytes
    assert time_us(narrow) > time_us(wide)


def test_what_the_cache_holds_is_not_read_from_memory() -> None:
    graph = two_kernel_plan(b=4096, d=4096).ugraph
    kernel = tiled(graph, 1, b=16, d=128)
    cold, warm = KernelModel(kernel, H200), KernelModel(kernel, H200, ("X",))
    assert moved_bytes(cold) - moved_bytes(warm) == graph.tensors["X"].bytes
    assert time_us(kernel, "X") < time_us(kernel)


def test_intermediates_are_moved_too() -> None:
    graph = several_kernels.ugraph("split_rms_norm_matmul")
    first, second = KernelModel(tiled(graph, 0), H200), KernelModel(tiled(graph, 1), H200)
    program = graph.program
    inputs = sum(t.bytes for t in program.inputs)
    partial = sum(t.bytes for t in graph.intermediates)
    assert moved_bytes(first) == inputs + partial
    output = program.tensors["Y"].bytes
    assert moved_bytes(second) == output + partial


NORM = """M = 32768, D = 8192
X[M, D] : bf16
Y[m, d] = X[m, d] / sqrt(sum[d](X[m, d] * X[m, d]))"""


@pytest.mark.parametrize(("rows", "reads"), [(1, 1), (16, 2)])
def test_rows_that_fit_the_cache_side_by_side_are_read_once(rows: int, reads: int) -> None:
    """Of half a gigabyte a block has one row of 16 KB under way, or 16 of them."""
    limits = SearchLimits(max_kernels=1)
    found = [f.ugraph for f in search(parse(NORM), limits=limits).families]
    graph = next(u for u in found if sum(s.loop is not None for s in only(u).sections) == 2)
    block = only(graph)
    sections = tuple(replace(s, tile=4096 // rows if s.loop else None) for s in block.sections)
    block = replace(block, grid=(GridAxis("m", rows),), sections=sections)
    kernel = TiledKernel(Tiling(graph.scope, block))
    read, written = (t.bytes for t in graph.tensors.values())
    assert moved_bytes(KernelModel(kernel, H200)) == reads * read + written


def moved_bytes(model: KernelModel) -> int:
    return model.load(LaunchConfig(4, (2, 2))).moved_bytes


def test_atomics_move_more_than_stores() -> None:
    graph = several_kernels.ugraph("split_matmul_added")
    (block,) = graph.kernels
    assert isinstance(block, BlockGraph)
    nodes = tuple(replace(n, op="store") if n.op == "store_add" else n for n in block.nodes)
    stored = replace(graph, kernels=(replace(block, nodes=nodes),))
    adding, storing = tiled(graph).sections[-1], tiled(stored).sections[-1]
    assert adding.cache_bytes == 4 * storing.cache_bytes


def test_work_is_counted_once_for_all_launch_options() -> None:
    kernel = tiled(rms_plan(b=16, d=4096, n=6144, tiles=(16, 64, 128)).ugraph)
    assert [s.is_loop for s in kernel.sections] == [True, False, True, False]
    heavy = kernel.sections[2]
    (dot,) = heavy.dots
    assert dot.multiplications == 16 * 64 * 128
    assert dot.sides == (16, 64)
    assert (dot.rows(False), dot.rows(True)) == (16, 64)
    assert heavy.iterations == 4096 // 128
    # X, G and W; the product of X and G goes through shared memory.
    assert heavy.loads == (2 * 16 * 128, 2 * 128, 2 * 128 * 64)
    assert heavy.computed == 16 * 128


def test_registers_hold_accumulators_and_little_else() -> None:
    # ptxas takes 169 registers a thread for two accumulators of 128 x 128 and 8 warps.
    program = parse_file(EXAMPLES / "gated_mlp.math", sizes={"B": 512})
    found = (f.ugraph for f in search(program).families if len(f.ugraph.kernels) == 1)
    graph = next(g for g in found if [s.loop for s in only(g).sections].count("d") == 1)
    large = next(
        i
        for i in instances(graph, H200, 200)
        if only(i.plan.ugraph).grid_tiles["b"] == 128 and only(i.plan.ugraph).grid_tiles["n"] == 128
    )
    (estimate,) = large.estimate.kernels
    assert large.plan.options[0].num_warps == 8
    assert 150 <= estimate.footprint.registers_per_thread <= 180
    # Written by hand it took 48.5 to 51.5 us.
    assert 40 <= estimate.time_us <= 60


def test_a_loop_of_one_iteration_is_no_pipeline() -> None:
    graph = rms_plan(b=16, d=256, n=6144, tiles=(16, 64, 64)).ugraph
    options = LaunchConfig(4, (6, 6))
    assert set(KernelModel(tiled(graph), H200).load(options).slots) == {0, 5}
    whole = KernelModel(looped_by(tiled(graph), 256), H200)
    assert set(whole.load(options).slots) == {0}


def test_deeper_pipelines_hide_more() -> None:
    graph = rms_plan(b=16, d=4096, n=6144, tiles=(16, 64, 256)).ugraph
    model = KernelModel(tiled(graph), H200)
    times = [model.estimate(LaunchConfig(4, (2, n))).time_us for n in (2, 3, 4)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.1 * times[2]


def test_clusters_that_fit_at_once_as_measured():
    assert {n: H200.sms_for_clusters(n) // n for n in (1, 2, 4, 8, 16)} == {
        1: 132, 2: 66, 4: 30, 8: 15, 16: 7,
    }  # fmt: skip
    unknown = replace(H200, gpc_sms=())
    assert unknown.sms_for_clusters(16) == 128
