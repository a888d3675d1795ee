"""The choice of a plan that serves many sizes, and programs without one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from plans import rms_plan

import mirage_py
from mirage_py.errors import UnsupportedError
from mirage_py.pipeline import sized_kernels
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.sized_kernels import sized_optimizer_for, sized_plan
from mirage_py.result import Candidate, Result, SearchSummary, Timing
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.ugraph.checks.run_time_sizes import (
    run_time_dims,
    why_fixed,
    with_run_time_sizes,
)

PLAN = rms_plan()
OTHER = replace(PLAN, backend="cuda")
SUMMARY = SearchSummary(1.0, 10, 3, True, {}, 0.5, 2.0)


def result(plan, *others) -> Result:
    candidates = [Candidate(p, Timing("plan", us, "measured")) for p, us in others]
    return Result(
        program=PLAN.ugraph.program,
        target="h200",
        backend="triton",
        baseline=Timing("eager", 20.0, "measured"),
        best=Timing("plan", 5.0, "measured"),
        plan=plan,
        evidence=None,
        search=SUMMARY,
        families=(),
        candidates=tuple(candidates),
    )


def test_the_winner_where_it_can():
    assert sized_plan(result(PLAN), ["b"]) == with_run_time_sizes(PLAN, ["b"])


def test_the_fastest_that_can():
    slower = replace(PLAN, options=(replace(PLAN.options[0], num_warps=8),))
    found = sized_plan(result(OTHER, (OTHER, 5.0), (slower, 7.0), (PLAN, 6.0)), ["b"])
    assert found == with_run_time_sizes(PLAN, ["b"])


def test_none_that_is_slower_than_the_baseline():
    assert sized_plan(result(None), ["b"]) is None
    with pytest.raises(UnsupportedError, match="no plan that was found"):
        sized_plan(result(OTHER, (PLAN, 30.0)), ["b"])


def test_a_program_with_its_size_written_in_is_not_searched(monkeypatch):
    monkeypatch.setattr(sized_kernels, "run", lambda *_, **__: pytest.fail("searched"))
    x, w = torch.randn(4, 6, 8), torch.randn(8, 5)
    program = mirage_py.trace(lambda x, w: x.transpose(0, 1).reshape(24, 8) @ w, x, w)
    fixed = [d for d in program.dim_names if why_fixed(with_no_kernels(program), d)]
    assert fixed
    with pytest.raises(UnsupportedError, match="cannot be left open"):
        sized_optimizer_for(Request("h200"))(program, fixed, lambda *_: None)


def with_no_kernels(program):
    return replace(PLAN, ugraph=replace(PLAN.ugraph, program=program, kernels=()), options=())


def test_found_once_and_looked_up_then(monkeypatch, tmp_path):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    searched = []

    def run(program, request):
        searched.append(request.backend)
        return result(PLAN)

    monkeypatch.setattr(sized_kernels, "run", run)
    find = sized_optimizer_for(Request("h200", effort="none"))
    first = find(PLAN.ugraph.program, ["b"], print)
    again = find(PLAN.ugraph.program, ["b"], print)
    assert searched == ["triton"]
    assert isinstance(first, SizedRunner)
    assert (first.source, again.source) == ("searched", "cached")
    assert again.plan == first.plan
    assert run_time_dims(again.plan) == ("b",)
    assert again.plan.options[0].run_time_sizes == ("b",)
    # Other dimensions are another kernel.
    find(PLAN.ugraph.program, ["b", "d"], print)
    assert len(searched) == 2
