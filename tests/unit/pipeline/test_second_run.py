"""Cached results in the next process: nothing is searched, nothing timed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plans import two_kernel_plan

from mirage_py.pipeline import cached_pipeline, pipeline
from mirage_py.reasons import Code, Served, Server, reason
from mirage_py.runtime.store.artifact import OriginalProgram
from mirage_py.ugraph.text.json_form import dump_text

PLAN = two_kernel_plan()
# No stage may run: each of their entrances raises.
SECOND = """
import sys
from mirage_py.pipeline import cached_pipeline, pipeline, searching
from mirage_py.runtime.compile import compile_pool
from mirage_py.runtime.timing import timing
from mirage_py.runtime.tune import tuner
from mirage_py.ugraph.text.json_form import dump_text, load_text

def never(*arguments, **options):
    raise AssertionError("this was done before")

for module, name in (
    (pipeline, "run"), (pipeline, "rank_plans"), (searching, "search"), (tuner, "tune"),
    (compile_pool, "CompilePool"), (timing, "time_interleaved"),
):
    assert callable(getattr(module, name))
    setattr(module, name, never)
prepare = cached_pipeline.optimizer_for(pipeline.Request("h200"))
runner = prepare(load_text(sys.stdin.read(), "program"), [], never)
print(dump_text(runner.plan))
"""


class Found:
    """What the first process found."""

    plan = PLAN
    link = None

    def document(self) -> dict[str, Any]:
        return {}


def test_where_nothing_is_faster_it_says_why_now_and_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    served = Served(Server.EAGER, reason(Code.NONE_FITS, "h200"))
    found = SimpleNamespace(plan=None, link=None, document=lambda: {"served": served.document()})
    monkeypatch.setattr(pipeline, "run", lambda *_, **__: found)
    prepare = cached_pipeline.optimizer_for(pipeline.Request("h200"))
    for _ in range(2):
        kernel = prepare(PLAN.ugraph.program, [], lambda x: x)
        assert isinstance(kernel, OriginalProgram)
        assert kernel.served == served
        assert kernel(7) == 7
        monkeypatch.setattr(pipeline, "run", lambda *_, **__: pytest.fail("searched"))


def test_torch_compile_serves_now_and_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    asked: list[Any] = []

    def compile_(function: Any, **options: Any) -> Any:
        asked.append(options)
        return lambda *inputs: ("compiled", function(*inputs), torch.is_grad_enabled())

    monkeypatch.setattr(torch, "compile", compile_)
    served = Served(Server.TORCH_COMPILE, reason(Code.NONE_FITS, "h200"))
    report = {"served": {**served.document(), "baseline": "compile_max_autotune"}}
    timed: list[Any] = []

    def run(_program: Any, request: pipeline.Request) -> Any:
        timed.append(request.baselines["compile_max_autotune"](1))
        return SimpleNamespace(plan=None, link=None, document=lambda: report)

    monkeypatch.setattr(pipeline, "run", run)
    prepare = cached_pipeline.optimizer_for(pipeline.Request("h200", effort="full"))
    options = {"dynamic": False, "mode": "max-autotune-no-cudagraphs"}
    for starts in (1, 2):  # what was timed serves; a later process compiles it again
        kernel = prepare(PLAN.ugraph.program, [], lambda x: x)
        assert kernel.served == served
        assert kernel(7) == kernel(7) == ("compiled", 7, False)
        assert asked == [options] * starts
    assert timed == [("compiled", 1, True)]


def test_the_second_process_searches_compiles_and_times_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(pipeline, "run", lambda *_, **__: Found())
    program = PLAN.ugraph.program
    first = cached_pipeline.optimizer_for(pipeline.Request("h200"))(program, [], print)
    run = subprocess.run(
        [sys.executable, "-c", SECOND],
        input=dump_text(program),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == dump_text(first.plan).strip() == dump_text(PLAN).strip()
