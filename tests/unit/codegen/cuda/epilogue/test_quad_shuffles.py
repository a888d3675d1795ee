"""Lanes that swap what they have before they store it (launch option ``stores lanes``)."""

from __future__ import annotations

import pytest
from cuda_plans import for_cuda, kernel_of
from plans import attention_plan

from mirage_py.codegen.cuda.epilogue.quad_shuffles import QuadShuffle, quad_shuffles, shuffled
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import check_emulated
from mirage_py.ugraph.ir.plan import Plan


def bits(text: str) -> tuple[tuple[str, int], ...]:
    """``e0 q3`` as bits."""
    return tuple((word[0], int(word[1:])) for word in text.split())


ROW = bits("e0 e1 e2")
# What m64nNk16 leaves of 64 rows and 64 columns.
FRAGMENT = Layout(bits("e0 q3 e3 e4 e5"), bits("e1 e2 q0 q1 q2"), bits("q4 q5"))


def test_neighbours_of_a_row_come_into_one_lane_and_lanes_lie_side_by_side():
    shuffles = quad_shuffles(FRAGMENT, ROW)
    assert shuffles == (QuadShuffle(2, 0), QuadShuffle(3, 1))
    found = Layout(bits("e0 q3 e1 e2 e5"), bits("e3 e4 q0 q1 q2"), bits("q4 q5"))
    assert shuffled(FRAGMENT, shuffles) == found
    assert quad_shuffles(found, ROW) == ()


def test_narrow_fragments_give_rows():
    narrow = Layout(bits("e0 q3"), bits("e1 e2 q0 q1 q2"), bits("q4 q5"))
    assert quad_shuffles(narrow, bits("e0 e1")) == (QuadShuffle(1, 0),)
    assert quad_shuffles(narrow, ROW) == ()


def test_copies_and_other_pairs_stay_as_they_are():
    assert quad_shuffles(Layout(bits("e0 e1"), (None,) * 5, bits("q0")), bits("e0 e1 e2")) == ()
    assert quad_shuffles(Layout(bits("q0 e0"), bits("e1 e2 q1 q2 q3"), ()), bits("e0 e1")) == ()


def attention(warps: int = 4, columns: int = 64, **flags: str) -> Plan:
    plan = attention_plan(1, 16 * warps, 64, columns, (16 * warps, 64))
    return for_cuda(plan, warps, 2, stores="lanes", **flags)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "plan",
    [attention(), attention(columns=32, arch="sm_90a", producer="warps"), attention(2)],
    ids=["sm_80", "sm_90a", "two warps"],
)
def test_agrees_with_float64(plan: Plan) -> None:
    judged = check_emulated(plan.ugraph.program, plan, seed=5)
    assert judged.passed, judged.reason


def test_a_thread_stores_sixteen_bytes():
    body = kernel_of(attention()).body
    behind = body[body.index("lanes swap") :]
    assert behind.count("swap_with_lane(") == 2
    assert "*reinterpret_cast<uint4*>(O" in behind
    plain = kernel_of(for_cuda(attention(), stores="")).body
    assert "*reinterpret_cast<unsigned*>(O" in plain
    assert "swap_with_lane" not in plain
