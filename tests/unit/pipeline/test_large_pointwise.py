"""Pointwise programs that move gigabytes: the plans that are timed first, and their accesses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.selection.selection import in_order_of_trial
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.code_check.compile_ptx import compiled
from mirage_py.search.rank import ranker
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

BY_HAND = Path(__file__).parents[3] / "benchmarks" / "results" / "h200-pointwise-by-hand.json"
RELU = "X[4096, 393216] : bf16\nY[m, d] = relu(X[m, d])\n"
# Rows of 512 in which three dimensions are of a run, and two that a bias tells apart.
FOUR = "X[112, 64, 512, 512] : bf16\nY[a, b, c, d] = 2 * X[a, b, c, d]\n"
RESIDUAL = """
X[4096, 393216], R[4096, 393216] : bf16, B[393216] : bf16
Y[m, d] = relu(X[m, d] + B[d]) + R[m, d]
"""
SINGLE = RELU.replace("bf16", "f32")


def first_plans(text: str, count: int) -> list[Plan]:
    """The first plans that effort quick would time."""
    request = Request(target="h200", effort="quick")
    found = rank_plans(parse(text), H200, request)
    return [i.plan for i in in_order_of_trial(found.instances, found.target, request)][:count]


def block_of(plan: Plan) -> tuple[int, int]:
    """Elements of a block and its warps."""
    (kernel,), (options,) = plan.ugraph.kernels, plan.options
    assert isinstance(kernel, BlockGraph)
    elements = 1
    for axis in kernel.grid:
        elements *= axis.tile or 1
    return elements, options.num_warps


def test_the_first_plans_are_the_fastest_by_hand() -> None:
    """Of both back ends, within 2 % of the fastest kernel of 481."""
    rows: list[dict[str, Any]] = json.loads(BY_HAND.read_text(encoding="utf-8"))["rows"]
    us: dict[tuple[int, int], float] = {}
    for row in rows:
        if hit := re.fullmatch(r"triton (\d+) warps (\d+) hint 0", row["kernel"]):
            us[int(hit[1]), int(hit[2])] = row["us"]
    plans = first_plans(RELU, 11)
    assert {p.backend for p in plans[:4]} == {"triton", "cuda"}
    fastest = min(row["us"] for row in rows)
    # More small blocks than the GPU starts while memory is read: they took 1.26 times as long.
    assert min(elements for elements, _ in map(block_of, plans)) >= 1024
    known = [us[block_of(p)] for p in plans if block_of(p) in us]
    assert known[0] <= 1.003 * fastest
    assert len(known) >= 6
    assert max(known) <= 1.02 * fastest


def test_formulas_of_one_launch_are_not_all_first() -> None:
    """ReLU is searched as one operator and as a maximum; few plans of gigabytes are timed."""
    plans = first_plans(RELU, 8)
    assert len({(p.backend, block_of(p)) for p in plans}) == 8
    every = first_plans(RELU, 1000)
    assert len({(p.backend, block_of(p)) for p in every}) < len(every)


@pytest.mark.parametrize("text", [RELU, FOUR, RESIDUAL, SINGLE])
def test_a_thread_reads_16_bytes_at_once_and_hints_nothing(text: str) -> None:
    plans = first_plans(text, 6)
    assert {p.backend for p in plans} == {"triton", "cuda"}
    for plan in {p.backend: p for p in reversed(plans)}.values():
        (kernel,) = emit_kernels(plan)
        ptx = compiled(kernel, 90).text
        loads = re.findall(r"ld\.global\S*", ptx)
        stores = re.findall(r"st\.global\S*", ptx)
        inputs = text.count("bf16") + text.count("R[4096") or 1
        assert len(loads) == inputs
        assert len(stores) == 1
        for access in (*loads, *stores):
            assert re.search(r"\.v4\.[bu]32|\.v4\.f32|\.v2\.[bu]64", access), access
        assert "evict_first" not in ptx
        assert not plan.options[0].evict_first


def test_what_was_learned_of_other_programs_has_no_say() -> None:
    """A ranker that knows no pointwise kernel of this size; of a smaller one it is asked."""
    small = RELU.replace("393216", "4096")
    with patch.object(ranker.Ranker, "scores", side_effect=AssertionError("asked")):
        assert block_of(first_plans(RELU, 1)[0]) == (1024, 4)
        with pytest.raises(AssertionError, match="asked"):
            first_plans(small, 1)
