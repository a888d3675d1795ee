"""Warp groups that begin their products one after the other (launch option ``turns``)."""

from __future__ import annotations

import pytest
from cuda_plans import for_cuda, kernel_of
from plans import attention_plan

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import check_emulated
from mirage_py.ugraph.ir.plan import Plan

FLAGS = {"arch": "sm_90a", "producer": "warps", "overlap": "on", "turns": "on"}


def in_turn(rows: int, keys: int, warps: int, stages: int, **flags: str) -> Plan:
    plan = attention_plan(1, rows, keys, 64, (rows, 64))
    return for_cuda(plan, num_warps=warps, num_stages=stages, **FLAGS | flags)


def body_of(plan: Plan) -> str:
    return kernel_of(plan).body


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "plan",
    [
        in_turn(128, 192, 8, 3),
        in_turn(128, 192, 8, 3, overlap="across"),
        in_turn(256, 128, 16, 2, producer="", copies="descriptors"),
    ],
    ids=["two groups", "two groups, across", "four groups, no producer"],
)
def test_agrees_with_float64(plan: Plan) -> None:
    """Races and deadlocks would be errors."""
    judged = check_emulated(plan.ugraph.program, plan, seed=3)
    assert judged.passed, judged.reason


def test_products_lie_between_a_group_s_turn_and_the_next_one_s():
    body = body_of(in_turn(128, 192, 8, 3))
    loop = body[body.index("for (int s_start = 64") : body.index("The products of the last")]
    mine, following = loop.index("named_barrier(2 + "), loop.index("named_arrive(2 + ")
    assert "wgmma" not in loop[loop.index("mbarrier_wait(") : mine]
    assert loop[mine:following].count("wgmma_commit") == 2
    assert loop[following:].index("wgmma_wait<1>") < 100
    assert body.count("if (warp >= 4) named_arrive(2, 256);") == 1
    assert body.count("if (warp < 4) named_barrier(2, 256);") == 1


def test_the_last_group_is_followed_by_the_first():
    assert "named_arrive(2 + ((warp >> 2) + 1) % 4, 256);" in body_of(in_turn(256, 128, 16, 2))


def test_nobody_waits_where_one_group_computes_or_nothing_overlaps():
    for plan in (in_turn(64, 192, 4, 3), in_turn(128, 192, 8, 3, overlap="")):
        assert "named_arrive" not in body_of(plan)
