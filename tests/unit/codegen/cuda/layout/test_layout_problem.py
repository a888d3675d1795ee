from __future__ import annotations

from dataclasses import replace
from functools import cache

import plans
import pytest
import samples
from oracles.layout_solver.choice_problem import (
    FORBIDDEN,
    choose_by_elimination,
    cost,
)
from oracles.layout_solver.layout_costs import (
    BARRIER,
    WAVEFRONT,
    conversion_cost,
    device_cost,
    exchange_cost,
    reduction_cost,
)
from oracles.layout_solver.layout_problem import layout_problem
from oracles.layout_solver.layout_solver import solution, solved_layouts

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import choose_layouts
from mirage_py.codegen.cuda.layout.layout_modes import (
    after,
    decided_layouts,
    deciding_operand,
)
from mirage_py.codegen.cuda.layout.staging import staged_loads
from mirage_py.codegen.cuda.text.layout import Layout, covers
from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan

PLANS = {
    "rms": plans.rms_plan(),
    "attention": plans.attention_plan(),
    **{
        name: Plan(samples.ugraph(name), (LaunchConfig(2),))
        for name in ("softmax", "row_maximum", "rms_norm_matmul")
    },
}


@cache
def facts_of(name: str) -> BlockAnalysis:
    graph = PLANS[name].ugraph
    found = lowered(graph, graph.kernels)
    return BlockAnalysis(graph.program, found.blocks[0], graph.tensors, "", found.in_base_two)


def ruled(name):
    facts, options = facts_of(name), PLANS[name].options[0]
    layouts = choose_layouts(facts, options)
    return facts, options, layouts, staged_loads(facts, {})


@pytest.mark.parametrize("name", PLANS)
def test_the_rule_is_a_choice_and_none_costs_more_than_the_best(name):
    facts, options, layouts, staged = ruled(name)
    found = layout_problem(facts, options, layouts, staged)
    by_rule = cost(found.problem, found.choice_of(layouts.own))
    assert by_rule < FORBIDDEN
    best = choose_by_elimination(found.problem, 1 << 16)
    assert best is not None
    assert cost(found.problem, best) <= by_rule


@pytest.mark.parametrize("name", PLANS)
def test_the_solver_proves_what_elimination_finds(name):
    pytest.importorskip("ortools")
    found = layout_problem(*ruled(name))
    best = choose_by_elimination(found.problem, 1 << 16)
    proved = solution(found.problem, seconds=5)
    assert proved.is_optimal
    assert best is not None
    assert proved.cost == cost(found.problem, best)


@pytest.mark.parametrize("name", PLANS)
def test_every_candidate_holds_the_tile(name):
    facts, options, layouts, staged = ruled(name)
    found = layout_problem(facts, options, layouts, staged)
    for number, candidates in zip(found.values, found.candidates, strict=True):
        assert candidates[0] == layouts.own[number]
        for candidate in candidates:
            assert covers(candidate, facts.live(number), facts.extents(number)), number


@pytest.mark.parametrize("mode", ["", "naive", "oracle"])
@pytest.mark.parametrize("name", PLANS)
def test_what_is_reduced_follows_from_its_operand(name, mode):
    facts, options, _, _ = ruled(name)
    if mode == "oracle":
        layouts = solved_layouts(facts, options)
    else:
        layouts = decided_layouts(facts, options.with_flag("layouts", mode))
    for number in facts.emitted:
        source = deciding_operand(facts, number)
        if source is None or source not in layouts.own:
            continue
        assert layouts.own[number] == after(facts, number, layouts.own[source])
        if number in layouts.loops:
            assert layouts.loops[number] == layouts.own[source]


def rows(*, lanes: str, registers: str) -> Layout:
    """A 32 x 32 tile of a warp: positions along one dimension in lanes, the other in registers."""
    return Layout(tuple((registers, n) for n in range(5)), tuple((lanes, n) for n in range(5)), ())


def row_major(at):
    return 32 * at["b"] + at["d"]


def test_neighbours_in_lanes_share_sectors():
    together = device_cost(rows(lanes="d", registers="b"), 1, 4, row_major)
    apart = device_cost(rows(lanes="b", registers="d"), 1, 4, row_major)
    vectors = device_cost(rows(lanes="b", registers="d"), 4, 4, row_major)
    assert together == 32 * 4
    assert apart == 32 * 32
    assert vectors == 8 * 32


def test_a_transposition_takes_a_swizzled_tile():
    one, other = rows(lanes="b", registers="d"), rows(lanes="d", registers="b")
    # 32 words, then 8 vectors of 16 bytes, each for four groups of lanes: no conflict anywhere.
    assert conversion_cost(one, other) == BARRIER + WAVEFRONT * (32 + 8 * 4)


def test_reductions_are_cheapest_in_registers():
    layout = rows(lanes="b", registers="d")
    assert reduction_cost(layout, ["d"]) == 31
    assert reduction_cost(layout, ["b"]) == 5 * 32 * (WAVEFRONT + 1)
    across = replace(layout, warps=(("b", 5),))
    assert exchange_cost(across, ["d"]) == 0
    assert exchange_cost(across, ["b"]) == 5 * 32 * (WAVEFRONT + 1) + BARRIER + WAVEFRONT * 32 * 3
