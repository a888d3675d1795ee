"""The timer of compiled graphs in a whole-graph benchmark: call after call, as a user makes them.

What is captured in CUDA graphs for the user is captured here, too, in memory of its own; all else
is called, and pays what the host takes. Nobody waits between calls, so the GPU sees them in a row.
What a graph writes to is put back before each call, off the clock: a cache has room for the next
step, and not for a hundred.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from mirage_py.runtime.base.gpu_context import require_gpu
from mirage_py.runtime.timing.timing import captured
from mirage_py.runtime.timing.turns import turn

_ROUNDS, _FEWEST_ROUNDS = 15, 5
# Timed calls of a candidate in a round, if they are short; one before them is not timed, so that
# the GPU has work when the clock starts.
_CALLS = 8
_SHARE_S = 0.02
# After so many seconds no round begins beyond the fifth.
_SECONDS = 4.0
_WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """A compiled graph with its inputs; ``is_captured``: the user gets CUDA graphs of it."""

    call: Callable[[], object]
    is_captured: bool


# From candidates by name, and what puts their inputs back, to microseconds a call.
Clock = Callable[[Mapping[str, CompiledGraph], Callable[[], None]], dict[str, float]]


def times_on_gpu(
    candidates: Mapping[str, CompiledGraph], restore: Callable[[], None]
) -> dict[str, float]:
    """Medians in microseconds over interleaved rounds; infinite where a candidate does not run.

    Raises torch's OutOfMemoryError, and LostGpuError, which names who broke the GPU context.
    """
    runs: dict[str, Callable[[], object]] = {}
    graphs: list[torch.cuda.CUDAGraph] = []
    failed: dict[str, float] = {}
    try:
        for name, candidate in candidates.items():
            try:
                runs[name] = _ready(candidate, restore, graphs)
            except torch.OutOfMemoryError:
                raise
            # It is dropped, whatever it raises.
            except Exception as error:  # noqa: BLE001
                require_gpu(name, error)
                failed[name] = float("inf")
        with turn():
            return failed | _medians(runs, restore)
    finally:
        for graph in graphs:
            graph.reset()


def _ready(
    candidate: CompiledGraph, restore: Callable[[], None], graphs: list[torch.cuda.CUDAGraph]
) -> Callable[[], object]:
    """What is timed; ``graphs`` gets the CUDA graph that was captured for it."""
    # Kernels are loaded and tuned at the first call.
    for _ in range(_WARM_UPS):
        restore()
        candidate.call()
    torch.cuda.synchronize()
    if not candidate.is_captured:
        return candidate.call
    graph, error = captured(candidate.call)
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    if graph is None:
        return candidate.call
    graphs.append(graph)
    return graph.replay


def _medians(
    runs: Mapping[str, Callable[[], object]], restore: Callable[[], None]
) -> dict[str, float]:
    begin = time.monotonic()
    # How long a call takes is found out by the first one, of which more are made then.
    slowest_us = 0.0
    for name, run in runs.items():
        slowest_us = max(slowest_us, *_round(name, run, restore, 1))
    calls = max(1, min(_CALLS, int(_SHARE_S * 1e6 / max(slowest_us, 1.0))))
    samples: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for number in range(_ROUNDS):
        if number >= _FEWEST_ROUNDS and time.monotonic() - begin > _SECONDS:
            break
        for name in order:
            samples[name] += _round(name, runs[name], restore, calls)
        order.reverse()
    return {name: statistics.median(found) for name, found in samples.items()}


def _round(
    name: str, run: Callable[[], object], restore: Callable[[], None], calls: int
) -> list[float]:
    """Microseconds of each of the calls."""
    pairs = [(_event(), _event()) for _ in range(calls)]
    try:
        restore()
        run()
        for start, end in pairs:
            restore()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
    except Exception as error:
        require_gpu(name, error)
        raise
    return [start.elapsed_time(end) * 1e3 for start, end in pairs]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
