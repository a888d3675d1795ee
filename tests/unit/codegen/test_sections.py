"""Kernels whose sections see the same dimension in different ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
import samples

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import GridAxis


def plan_of(name: str, tile: int) -> Plan:
    """Every grid axis and loop of a sample in tiles of this size."""
    graph = samples.ugraph(name)
    (block,) = graph.kernels
    sections = tuple(replace(s, tile=tile if s.loop else None) for s in block.sections)
    grid = tuple(GridAxis(a.dim, tile) for a in block.grid)
    kernel = replace(block, grid=grid, sections=sections)
    return Plan(replace(graph, kernels=(kernel,)), (LaunchConfig(4, (2,)),))


@pytest.mark.covering(1)
@pytest.mark.parametrize("tile", [1, 2, 16])
@pytest.mark.parametrize("name", ["split_matmul_added", "residual_gated"])
def test_every_tile_agrees_with_float64(name, tile):
    plan = plan_of(name, tile)
    found = check_interpreted(plan.ugraph.program, plan, seed=1)
    assert found.passed, found.reason


def test_positions_of_a_dimension_after_a_loop_over_it():
    """S is summed over all of d in straight code, behind a loop that takes tiles of d."""
    (kernel,) = emit_triton(plan_of("split_matmul_added", 2))
    lines = [line.strip() for line in kernel.source.splitlines()]
    assert "d = d_start + tl.arange(0, 2)" in lines
    again = lines.index("d = tl.arange(0, 8)")
    assert lines[again + 1] == "d_in = d < 5"
    assert again > lines.index("d = d_start + tl.arange(0, 2)")
