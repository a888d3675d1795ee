"""What a cached result may depend on is part of its question."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage_py.cache import cached_results
from mirage_py.cache.cached_results import Question, cached_link, cached_result, keep
from mirage_py.frontend.spec.parse import parse
from mirage_py.pipeline.cached_pipeline import question_of
from mirage_py.pipeline.pipeline import optimize
from mirage_py.pipeline.selection.request import Request

PROGRAM = parse("B = 48, N = 96\nX[B, N] : f16\nY[b, n] = X[b, n] / sum[n](X[b, n]^2)")
ASKED = Question(PROGRAM, "h200", "triton", "quick", 0, measured=False)


def test_a_prediction_is_of_one_cost_model(monkeypatch: pytest.MonkeyPatch):
    measured = replace(ASKED, measured=True)
    before, times = ASKED.key, measured.key
    assert before == replace(ASKED).key != times
    monkeypatch.setattr(cached_results, "_model_digest", lambda: "another")
    assert ASKED.key != before
    assert measured.key == times


def test_a_result_of_another_cost_model_is_searched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path
):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    request = Request("h200", "triton", "none")
    question = question_of(PROGRAM, request)
    result = optimize(PROGRAM, target="h200", backend="triton", effort="none")
    # One that lacks a baseline, which was still compiling, is searched again as well.
    keep(question, replace(result, record={**result.record, "late": ["compile"]}))
    assert cached_result(question) is None
    keep(question, result)
    found = cached_result(question)
    assert found is not None
    assert found.baseline == replace(result.baseline, time_us=round(result.baseline.time_us, 3))
    monkeypatch.setattr(cached_results, "_model_digest", lambda: "another")
    assert cached_result(question_of(PROGRAM, request)) is None


def test_the_host_counts_where_it_is_timed():
    asked = Request("h200", counts_host=True)
    assert question_of(PROGRAM, asked).counts_host
    assert replace(ASKED, counts_host=True).key == ASKED.key
    measured = replace(ASKED, measured=True)
    assert replace(measured, counts_host=True).key != measured.key


def test_a_plan_for_a_chain_is_kept_beside_the_result(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """A second process serves the same chain as the first one, which measured it."""
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    alone = question_of(PROGRAM, Request("h200", "triton", "none"))
    asked = question_of(PROGRAM, Request("h200", "triton", "none", streaming=True))
    assert alone.key != asked.key
    result = optimize(PROGRAM, target="h200", backend="triton", effort="none")
    assert result.plan is not None
    link = replace(
        result.plan, options=tuple(replace(o, num_warps=16) for o in result.plan.options)
    )
    keep(alone, result)
    keep(asked, replace(result, link=link))
    assert (cached_link(alone), cached_link(asked)) == (None, link)
    found = cached_result(asked)
    assert found is not None
    assert found.plan == result.plan
    keep(asked, result)
    assert cached_link(asked) is None
