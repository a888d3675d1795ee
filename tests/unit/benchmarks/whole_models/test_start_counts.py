"""Counters of work done anew at a start."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from triton import knobs

from benchmarks.whole_models.start_counts import start_counts
from mirage_py.dynamo.whole_graph import timer
from mirage_py.pipeline import pipeline
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.compile.cuda_compiler import CudaCompiler
from mirage_py.runtime.timing import timing
from mirage_py.runtime.tune import tuner

NOTHING: Any = None


def compiled_by_triton(module: str, *, cache_hit: bool) -> None:
    fn = SimpleNamespace(__module__=module)
    knobs.compilation.listener(src=SimpleNamespace(fn=fn), cache_hit=cache_hit)


def test_work_is_counted_and_what_a_cache_answers_is_not():
    with start_counts() as counts:
        assert counts == {"searches": 0, "compiles": 0, "timings": 0}
        for work in (
            lambda: pipeline.optimize(NOTHING),
            lambda: tuner.tune(NOTHING, (), {}, target=NOTHING),
            lambda: timing._captured(NOTHING, 1),
            lambda: timer._ready(NOTHING, NOTHING, []),
            lambda: CudaCompiler("nvcc", "0", path="/nowhere").compile("", "k", "sm_90a"),
        ):
            with contextlib.suppress(Exception):
                work()
        with CompilePool(1) as pool:
            assert pool.compile([], 90) == []
        compiled_by_triton("mirage_py_kernel_0123_k", cache_hit=True)
        compiled_by_triton("torch._inductor.codecache", cache_hit=False)
        assert counts == {"searches": 1, "compiles": 2, "timings": 3}
        compiled_by_triton("mirage_py_kernel_0123_k", cache_hit=False)
        assert counts["compiles"] == 3


def test_afterwards_nothing_is_counted():
    with start_counts() as counts:
        pass
    with contextlib.suppress(Exception):
        pipeline.optimize(NOTHING)
    assert counts["searches"] == 0
    assert knobs.compilation.listener is None
