"""Counts of what a start of a model does anew: searches, compilations and timings of ours.

The second start is to do none of them. Counted is where the work is done, below every cache: a
kernel that is read from a cache is no compilation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

Counts = dict[str, int]

# What names the modules of our Triton kernels; Inductor compiles kernels of its own with Triton.
_OUR_MODULES = "mirage_py_kernel_"


@contextlib.contextmanager
def start_counts() -> Iterator[Counts]:
    """The counts of what is done inside, kept up to date."""
    from triton import knobs

    from mirage_py.dynamo.whole_graph import timer
    from mirage_py.pipeline import pipeline
    from mirage_py.runtime.compile.compile_pool import CompilePool
    from mirage_py.runtime.compile.cuda_compiler import CudaCompiler
    from mirage_py.runtime.timing import timing
    from mirage_py.runtime.tune import tuner

    counts: Counts = {"searches": 0, "compiles": 0, "timings": 0}
    earlier = knobs.compilation.listener

    def listener(**event: Any) -> None:
        module = str(getattr(getattr(event["src"], "fn", None), "__module__", ""))
        if module.startswith(_OUR_MODULES) and not event["cache_hit"]:
            counts["compiles"] += 1
        if earlier is not None:
            earlier(**event)

    with contextlib.ExitStack() as patches:
        for owner, name, kind in (
            (pipeline, "run", "searches"),
            (CompilePool, "compile", "compiles"),
            (CudaCompiler, "compile", "compiles"),
            (tuner, "tune", "timings"),
            # What each entry goes through that is timed, whoever asks.
            (timing, "_captured", "timings"),
            # And each whole graph.
            (timer, "_ready", "timings"),
        ):
            counted = _counted(getattr(owner, name), counts, kind)
            patches.enter_context(mock.patch.object(owner, name, counted))
        knobs.compilation.listener = listener
        try:
            yield counts
        finally:
            knobs.compilation.listener = earlier


def _counted(function: Callable[..., Any], counts: Counts, kind: str) -> Callable[..., Any]:
    def counting(*given: Any, **named: Any) -> Any:
        counts[kind] += 1
        return function(*given, **named)

    return counting
