"""The choice of back ends, and a result of the CUDA back end where there is no GPU."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from plans import rms_plan

import mirage_py
from mirage_py.errors import CompileError, InputError
from mirage_py.pipeline import pipeline
from mirage_py.pipeline.selection.backends import for_cuda, limits_for, usable
from mirage_py.reasons import Code, reason
from mirage_py.runtime.compile import cuda_compiler
from mirage_py.runtime.cpu import cpu_run
from mirage_py.runtime.cpu.cpu_run import check_on_cpu
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.targets import A100, H200
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

SOFTMAX = "B = 3, S = 10\nX[B, S] : f32\nY[b, s] = exp(X[b, s]) / sum[s](exp(X[b, s]))\n"
WITHOUT = CompileError("there is no compiler", repair="install one")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise WITHOUT

    monkeypatch.setattr(cuda_compiler, "cuda_compiler", fails)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_compiler, "cuda_compiler", lambda: "one")


def test_auto_is_both_where_cuda_compiles(compiler: None):
    assert usable("auto") == ("auto", ())
    assert usable("cuda") == ("cuda", ())


def test_auto_is_triton_alone_without_a_compiler_which_is_said(no_compiler: None):
    backend, (note,) = usable("auto")
    assert backend == "triton"
    assert "there is no compiler; install one" in note
    assert usable("triton") == ("triton", ())
    assert usable("cuda") == ("cuda", ())


def test_an_unknown_back_end():
    with pytest.raises(InputError, match="metal"):
        usable("metal")


def test_a_gpu_that_measures_needs_a_compiler(no_compiler: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "resolve_target", lambda _: (H200, True))
    monkeypatch.setattr(pipeline, "rank_plans", None)
    with pytest.raises(CompileError, match="there is no compiler"):
        pipeline.optimize(mirage_py.parse(SOFTMAX, name="softmax"), backend="cuda")


def test_plans_say_what_they_may_use_of_their_target():
    triton = rms_plan()
    there = for_cuda(triton, H200)
    assert there.backend == "cuda"
    assert [o.arch for o in there.options] == ["sm_90a"]
    assert for_cuda(there, A100) == replace(triton, backend="cuda")


def test_clusters_are_searched_for_cuda():
    limits = SearchLimits(max_loops=2)
    assert limits_for("triton", limits, H200) == limits
    assert limits_for("auto", limits, H200) == replace(limits, max_cluster_blocks=16)
    assert limits_for("cuda", limits, A100) == limits
    few = replace(limits, max_cluster_blocks=4)
    assert limits_for("cuda", few, H200) == few


@pytest.mark.skipif(cpu_run.cpp_compiler() is None, reason="needs a C++ compiler")
def test_a_result_of_the_cuda_back_end_without_a_gpu():
    program = mirage_py.parse(SOFTMAX, name="softmax")
    result = pipeline.optimize(program, target="h200", backend="cuda", effort="none")
    assert result.plan is not None
    assert (result.backend, result.plan.backend) == ("cuda", "cuda")
    assert result.document()["backend"] == "cuda"
    assert result.evidence is not None
    assert result.evidence.float_source == "CPU emulation, reduced size"
    assert 0 < result.evidence.max_rel_error <= result.evidence.float_bound
    without = shutil.which("nvcc") is None and any("not compiled" in n for n in result.notes)
    assert without or result.notes[-1].startswith("no GPU was used")
    assert len({c.plan.backend for c in result.candidates if c.plan is not None}) == 1


def test_what_cannot_be_done_here_is_said(no_compiler: None, monkeypatch: pytest.MonkeyPatch):
    plan = for_cuda(rms_plan(), H200)
    monkeypatch.setattr(cpu_run, "cpp_compiler", lambda: None)
    found = check_on_cpu(plan.ugraph.program, plan, H200, seed=1)
    assert found.fault is None
    assert found.source == "not run"
    assert "no C++ compiler" in found.notes[0]
    assert found.notes[1] == "not compiled for h200: there is no compiler"


def test_a_plan_that_the_back_end_cannot_express_is_dropped(monkeypatch: pytest.MonkeyPatch):
    opened = rms_plan()
    (block,) = opened.ugraph.kernels
    grid = tuple(replace(a, tile=None) for a in block.grid)
    ugraph = replace(opened.ugraph, kernels=(replace(block, grid=grid),))
    plan = for_cuda(replace(opened, ugraph=ugraph), H200)
    monkeypatch.setattr(cpu_run, "cpp_compiler", lambda: None)
    monkeypatch.setattr(cuda_compiler, "cuda_compiler", lambda: "one")
    assert check_on_cpu(plan.ugraph.program, plan, H200, seed=1).fault.code is Code.NO_SCHEDULE


def test_a_wrong_result_is_a_fault(monkeypatch: pytest.MonkeyPatch):
    from mirage_py.runtime.cpu import cuda_emulation

    wrong = FloatEvidence(0.5, 1e-3, None, False, reason(Code.NOT_FINITE, "Y[0, 0]"))
    monkeypatch.setattr(cuda_emulation, "check_emulated", lambda *_, **__: wrong)
    monkeypatch.setattr(cpu_run, "cpp_compiler", lambda: "g++")
    plan = for_cuda(rms_plan(), H200)
    found = check_on_cpu(plan.ugraph.program, plan, H200, seed=1)
    assert (found.fault, found.evidence) == (wrong.reason, wrong)
