"""Forms of a result: a kernel, a folder, a line of text, an explanation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from plans import rms_plan

import mirage_py
from mirage_py.cache.stored_result import stored_result
from mirage_py.errors import InputError
from mirage_py.reasons import Code, Server, reason, why_original
from mirage_py.result import Result, SearchSummary, Timing
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.store.artifact import Artifact

PLAN = rms_plan()
RESULT = Result(
    program=PLAN.ugraph.program,
    target="h200",
    backend="triton",
    baseline=Timing("eager", 20.0, "model"),
    best=Timing("plan 1", 5.0, "model"),
    plan=PLAN,
    evidence=None,
    search=SearchSummary(1.0, 10, 3, True, {}, 0.5, 2.0),
    families=(),
    candidates=(),
)
FALLBACK = replace(RESULT, plan=None, best=Timing("eager", 20.0, "model"))


def test_a_kernel():
    kernel = RESULT.kernel()
    assert isinstance(kernel, PlanRunner)
    assert kernel.plan == PLAN


def test_a_folder(tmp_path):
    saved = RESULT.save(tmp_path / "out")
    assert saved.artifact == tmp_path / "out"
    assert mirage_py.load(tmp_path / "out").plan == PLAN


def test_a_line():
    assert mirage_py.kernel_from(RESULT.plan_text()).plan == PLAN
    with pytest.raises(InputError, match="has no plan"):
        FALLBACK.plan_text()


def test_an_explanation():
    text = RESULT.explain()
    assert "time: 5.0 us (model), eager 20.0 us" in text
    assert "search: 10 candidates, all of the space" in text
    assert text.endswith(f'@mirage_py.superoptimize(plan="{RESULT.plan_text()}")')
    assert "superoptimize(plan" not in FALLBACK.explain()


def test_what_serves_it_is_a_fact():
    assert RESULT.served == (
        Server.OURS,
        reason(Code.BEST, "5.00 us predicted (plan 1)", "20.00 us predicted (eager)"),
    )
    nothing = replace(FALLBACK, why_not=reason(Code.NONE_FITS, "h200"))
    assert nothing.served == (Server.EAGER, reason(Code.NONE_FITS, "h200"))
    assert why_original(nothing.document()) == reason(Code.NONE_FITS, "h200")
    assert "served by: eager: no family fits h200" in nothing.explain()
    assert why_original({}).code is Code.ORIGINAL_FASTER  # of a report that does not say


def test_torch_compile_as_the_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda f, **_: lambda *inputs: ("compiled", f(*inputs)))
    compiled = replace(FALLBACK, original="compile", why_not=reason(Code.NONE_VERIFIED))
    assert compiled.served == (Server.TORCH_COMPILE, reason(Code.NONE_VERIFIED))
    assert "served by: torch.compile: no family passed" in compiled.explain()
    document = compiled.document()
    assert document["served"]["by"] == "torch.compile"
    assert document["served"]["baseline"] == "compile"
    held = stored_result(PLAN.ugraph.program, Artifact(PLAN.ugraph.program, None, document))
    assert held.served == compiled.served
    assert held.document()["served"] == document["served"]
    compiled.save(tmp_path / "out")
    inputs = [torch.ones(t.shape, dtype=torch.float16) for t in PLAN.ugraph.program.inputs]
    expected = FALLBACK.kernel()(*inputs)
    for kernel in (compiled.kernel(), mirage_py.load(tmp_path / "out")):
        said, result = kernel(*inputs)
        assert said == "compiled"
        torch.testing.assert_close(result, expected)
