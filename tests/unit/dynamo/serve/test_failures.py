"""A region whose search fails is searched once, until something changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.serve import failures
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.servers import optimizing
from mirage_py.errors import LostGpuError, UnsupportedError
from mirage_py.pipeline import pipeline
from mirage_py.targets import target


class Starts:
    """``start()``: a process begins with the caches of those before it; the line of its region."""

    def __init__(self, traced: Any, error: Exception, **options: Any) -> None:
        self.searches = 0
        self.error = error
        self._options = BackendOptions(target="h200", **options)
        x, w = torch.randn(4, 64), torch.randn(64, 64)
        self._graph = lambda: traced(lambda x, w: (F.silu(F.rms_norm(x, (64,)) @ w),), x, w)

    def run(self, *_: Any) -> Any:
        self.searches += 1
        raise self.error

    def start(self) -> str:
        compiler = GraphCompiler(self._options, target("h200"), optimizing(self._options))
        compiler.fused("inference", self._graph())
        (line,) = [line for line in compiler.lines if ": region " in line]
        return line


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("its plain form does not load"), "RuntimeError: its plain form does not"),
        (UnsupportedError("no such view", why="it reads twice"), "no such view (it reads twice)"),
    ],
)
def test_a_failure_is_remembered_with_its_reason(
    traced: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
):
    starts = Starts(traced, error)
    monkeypatch.setattr(pipeline, "run", starts.run)
    assert f"left to torch.compile: {words}" in starts.start()
    assert f"left to torch.compile: at an earlier start: {words}" in starts.start()
    assert starts.searches == 1
    # Other sources may do better.
    monkeypatch.setattr(failures, "_sources_digest", lambda: "changed")
    assert f"left to torch.compile: {words}" in starts.start()
    assert starts.searches == 2


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), OSError("full")])
def test_what_may_pass_is_tried_again(
    traced: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    starts = Starts(traced, error)
    monkeypatch.setattr(pipeline, "run", starts.run)
    for _ in range(2):
        assert "full" in starts.start()
    assert starts.searches == 2


def test_a_lost_gpu_is_no_failure_of_the_region(traced: Any, monkeypatch: pytest.MonkeyPatch):
    starts = Starts(traced, LostGpuError("plan 3 broke it", launched="plan 3"))
    monkeypatch.setattr(pipeline, "run", starts.run)
    for _ in range(2):
        with pytest.raises(LostGpuError):
            starts.start()
    assert starts.searches == 2


def test_without_a_cache_nothing_is_remembered(traced: Any, monkeypatch: pytest.MonkeyPatch):
    starts = Starts(traced, RuntimeError("no"), cache=False)
    monkeypatch.setattr(pipeline, "run", starts.run)
    for _ in range(2):
        starts.start()
    assert starts.searches == 2
