"""Tilings of kernels over windows, and their predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage_py.codegen.cuda.windows.shares import window_shares
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.rank.window_choices import window_choices
from mirage_py.targets import target
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.building.windows import Window, windows
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, F32
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, UGraph

H200 = target("h200")


def depthwise(width: int, extent: int = 3, dtype=BF16) -> Program:
    """A convolution of one channel each, a row and a column of padding on every side."""
    builder = ProgramBuilder("depthwise")
    sizes = {"n": 32, "c": 128, "h": width, "w": width}
    axes = tuple((builder.dim(d, size),) for d, size in sizes.items())
    builder.input("x", tuple(sizes.values()), dtype)
    builder.input("t", (128, extent, extent), dtype)
    x = NamedArray(builder.load("x", [ix.dim(d) for d in sizes]), axes)
    window = Window(extent, width, before=extent // 2)
    found, _ = windows(builder, x, {2: window, 3: window}, 0.0)
    *_, (k,), (j,) = found.axes
    taps = builder.load("t", [ix.dim("c"), ix.dim(k), ix.dim(j)])
    node = builder.sum(builder.apply("mul", found.node, taps), (k, j))
    index = tuple(ix.dim(a[0]) for a in found.axes[:4])
    builder.outputs.append(Output(Tensor("y", tuple(sizes.values()), dtype), node, index))
    return builder.build()


def choices(program: Program):
    block = BlockGraph.whole("k", program.nodes, program.outputs, program.dim_names)
    dims = [e.name for e in program.outputs[0].index]
    block = replace(block, grid=tuple(GridAxis(d) for d in reversed(dims)))
    return window_choices(UGraph(program, (block,)), block, (), H200)


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_three_by_three_is_bound_by_memory(dtype):
    program = depthwise(112, dtype=dtype)
    found = choices(program)
    moved = sum(t.bytes for t in program.tensors.values())
    assert found[0][2].bound == "memory"
    assert found[0][2].time_us < 1.3 * moved / H200.dram_bytes_per_us
    assert [c[2].time_us for c in found] == sorted(c[2].time_us for c in found)


def test_wide_windows_are_bound_by_their_sums():
    assert choices(depthwise(56, extent=7))[0][2].bound == "plain cores"


def test_rows_of_odd_length_cost_more():
    # No two elements of a row are sure to lie in one word.
    per_element = [choices(depthwise(n))[0][2].time_us / n**2 for n in (112, 111)]
    assert per_element[1] > 1.1 * per_element[0]


def test_plans_of_triton_have_other_tiles():
    program = depthwise(112)
    block = BlockGraph.whole("k", program.nodes, program.outputs, program.dim_names)
    block = replace(block, grid=tuple(GridAxis(e.name) for e in program.outputs[0].index))
    tilings = {}
    for backend in ("cuda", "triton"):
        ranker = KernelRanker(H200, backend)
        family = UGraph(program, (block,))
        form = ranker.form(family, ranker.splits(family)[0])
        tilings[backend] = ranker.ranked(form, 0)
    assert tilings["cuda"][0].estimate.time_us < tilings["triton"][0].estimate.time_us


def test_plans_beside_one_over_windows_are_over_windows():
    program = depthwise(112)
    block, options, _ = choices(program)[0]
    plan = Plan(UGraph(program, (block,)), (options,), "cuda")
    found = [*neighbours(plan, H200)]
    tilings = {p.ugraph.kernels[0].grid for p in found}
    assert len(tilings) > 2
    assert all(
        window_shares(p.ugraph.kernels[0], program.sizes, program.tensors, p.options[0].num_warps)
        for p in found
    )


def test_parts_of_a_long_reduction_are_no_windows():
    # They had plans of plain cores alone, after a second of unrolling (32 parts of 128).
    builder = ProgramBuilder("part")
    sizes = {"m": 64, "k_part": 32, "k": 128, "n": 256}
    m, part, k, n = (ix.dim(builder.dim(d, size)) for d, size in sizes.items())
    row = part * 128 + k
    builder.input("x", (64, 4096), BF16)
    builder.input("w", (4096, 256), BF16)
    node = builder.matmul(builder.load("x", [m, row]), builder.load("w", [row, n]), ("k",))
    sums = Output(Tensor("y", (32, 64, 256), F32), node, (part, m, n))
    builder.outputs.append(sums)
    assert not choices(builder.build())
