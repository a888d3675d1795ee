"""Narrow products come first in the text of a section, and loads where there are no products."""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import naive_plan
from unit.search import programs

from mirage_py.codegen.tiling.product_order import text_order
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.compile.compile import KernelSource, compiled_handle
from mirage_py.search.enumerate.search import search
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis

SIZES = {"b": 16, "d": 128, "n": 32}


def plans(program: Program) -> list[Plan]:
    """Families of one kernel with one loop over d, with small tiles."""
    found = []
    for family in search(program).families:
        block, *others = family.ugraph.kernels
        if others or not isinstance(block, BlockGraph):
            continue
        if [s.loop for s in block.sections if s.loop] != ["d"]:
            continue
        sections = tuple(replace(s, tile=SIZES["d"] if s.loop else None) for s in block.sections)
        grid = tuple(GridAxis(a.dim, SIZES.get(a.dim, 1)) for a in block.grid)
        kernel = replace(block, grid=grid, sections=sections)
        graph = replace(family.ugraph, kernels=(kernel,))
        found.append(Plan(graph, (LaunchConfig(4, (3,)),)))
    return found


@pytest.fixture(scope="module")
def lora() -> Plan:
    """X W and X A in one loop, the rest behind it."""
    return plans(programs.lora(b=16, d=512))[0]


def test_the_narrow_product_is_first(lora: Plan) -> None:
    (kernel,) = emit_triton(lora)
    lines = [line.strip() for line in kernel.text.source.splitlines()]
    loads = [line.split(" ")[0] for line in lines if "tl.load" in line]
    assert loads == ["x_tile", "a_tile", "w_tile", "b_tile"]


def test_warps_share_the_columns(lora: Plan) -> None:
    """Each warp multiplies its own columns of X W, not all of them."""
    (kernel,) = emit_triton(lora)
    ptx = compiled_handle(KernelSource.of(kernel), 90).asm["ptx"]
    # An iteration: 8 steps of 16 along d, one instruction each for X A and X W; one for the end.
    assert ptx.count("mma.sync") == 17


@pytest.mark.parametrize("program", [programs.lora(b=16, d=512), programs.gated_mlp(d=512, n=64)])
def test_every_node_comes_after_what_it_needs(program: Program) -> None:
    for plan in plans(program):
        (block,) = plan.ugraph.kernels
        assert isinstance(block, BlockGraph)
        tiling = Tiling(plan.ugraph.program, block)
        for number, section in enumerate(block.sections):
            order = text_order(block, tiling, number)
            assert sorted(order) == sorted(section.nodes)
            place = {n: position for position, n in enumerate(order)}
            for n in order:
                assert all(place[a] < place[n] for a in block.nodes[n].args if a in place)


def test_equal_products_stay_in_their_order() -> None:
    for plan in plans(programs.gated_mlp(d=512, n=64)):
        (block,) = plan.ugraph.kernels
        assert isinstance(block, BlockGraph)
        tiling = Tiling(plan.ugraph.program, block)
        for number, section in enumerate(block.sections):
            assert text_order(block, tiling, number) == section.nodes


def test_without_matmuls_all_loads_are_asked_for_at_once() -> None:
    program = parse(
        "M = 8, D = 64\nX[M, D], W[M], B[D] : f16\nY[m, d] = exp(X[m, d]) * W[m] + B[d]"
    )
    (kernel,) = emit_triton(naive_plan(program, {"m": 4}))
    lines = kernel.source.splitlines()
    loads = [n for n, line in enumerate(lines) if "tl.load(" in line]
    assert len(loads) == 3
    assert loads[-1] - loads[0] == 2
