"""Timing with a cold L2 and without launch cost, of several functions in one run.

Each entry is captured in a CUDA graph that runs it once over every input set; the sets together
exceed the L2 four times, so each run finds its inputs in DRAM, as it would inside a model. Replays
of the entries are interleaved, so that a change of clocks or a neighbour on the machine meets all
of them alike. The median of the replays counts, divided by the number of sets. An entry that cannot
be captured is timed call by call.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage_py.errors import InputError
from mirage_py.runtime.base.gpu_context import require_gpu
from mirage_py.runtime.base.gpu_memory import (
    MOST_IDLE_BYTES,
    give_back,
    is_out_of_memory,
    make_room,
    reserved_bytes,
)
from mirage_py.runtime.timing.turns import turn

if TYPE_CHECKING:
    import torch

# torch may go on asking a graph whose capture broke off whether it is capturing: such a graph must
# outlive every later capture.
_FAILED_GRAPHS: list[Any] = []

# Runs the entry on one of the input sets.
Entry = Callable[[int], Any]

ROTATION_FACTOR = 4
# A set so many times the L2 is read anew by each run: a twentieth at most is still there.
_ALONE_FACTOR = 20
# Enough sets that small inputs are spread over memory; more would only make the capture slow.
MAX_SETS = 1024
_FIRST_SETS = MAX_SETS // 4
MIN_REPS = 3
# What a run takes of memory, from which on runs share it: the L2 holds nothing of it anyway.
_LARGE_RUN_BYTES = 1 << 29
# Of replays, however late it is: with three each, kernels of other processes decide who wins.
_LEAST_S = 0.3
_MICROSECONDS = 1e3  # in a millisecond, which is what events measure


@dataclass(frozen=True, slots=True)
class Timed:
    """Microseconds of one run: median and 20th and 80th percentile over the replays.

    ``failure`` is why it did not run at all; ``note`` says how it was timed if not by graph replay.
    """

    median_us: float
    p20_us: float
    p80_us: float
    reps: int
    note: str = ""
    failure: str = ""

    @property
    def ran(self) -> bool:
        """Whether there is a time."""
        return not self.failure


def rotation_sets(set_bytes: int, l2_bytes: int) -> int:
    """How many input sets of ``set_bytes`` each exceed the L2 four times together; 2 to 1024, and
    one where it is so large that what the L2 has of its end is next to nothing.
    """
    if set_bytes >= _ALONE_FACTOR * l2_bytes:
        return 1
    needed = -(-ROTATION_FACTOR * l2_bytes // max(1, set_bytes)) + 1
    return max(2, min(MAX_SETS, needed))


def first_sets(set_bytes: int, l2_bytes: int) -> int:
    """How many of the input sets a first timing takes, which only says what is timed again: of very
    many as many as exceed the L2 half again, or a quarter of the most where all of them do not.
    """
    every = rotation_sets(set_bytes, l2_bytes)
    enough = -(-3 * l2_bytes // (2 * max(1, set_bytes))) + 1
    return min(every, max(_FIRST_SETS, enough if enough < every else 0))


def time_interleaved(
    entries: Mapping[str, Entry],
    sets: int,
    *,
    reps: int,
    deadline: float | None = None,
    seconds: float = inf,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Timed]:
    """Time each entry over input sets 0 to ``sets`` - 1 with ``reps`` interleaved replays.

    After ``deadline`` (of ``time.monotonic``), but not before some tenths of a second of replays,
    when these have taken so many ``seconds``, or when ``stop`` says so, no replay begins beyond the
    third of each entry. What finds no memory beside the graphs of the others is timed after them,
    alone. Raises InputError without a GPU, and LostGpuError where an entry broke the GPU context:
    none after it could run.
    """
    import torch

    if not torch.cuda.is_available():
        raise InputError("there is nothing to time on", why="torch sees no NVIDIA GPU")
    timed = partial(
        _interleaved, sets=sets, reps=reps, deadline=deadline, seconds=seconds, stop=stop
    )
    results = timed(entries)
    for name, entry in entries.items():
        if is_out_of_memory(results[name].failure):
            make_room()
            results |= timed({name: entry})
    give_back(MOST_IDLE_BYTES)
    return results


def _interleaved(
    entries: Mapping[str, Entry],
    sets: int,
    *,
    reps: int,
    deadline: float | None,
    seconds: float,
    stop: Callable[[], bool],
) -> dict[str, Timed]:
    replays: dict[str, _Replay] = {}
    results: dict[str, Timed] = {}
    # torch collects garbage before every capture, which takes half a second once a compiler is
    # loaded: what is there already is taken out of the collector's sight.
    gc.freeze()
    pool = None
    try:
        for name, entry in entries.items():
            try:
                give_back()
                before = reserved_bytes()
                replays[name] = _captured(entry, sets, pool)
                # Each run is over when the next one begins, and nobody reads its results: where
                # these are large they all lie in the memory of the first graph.
                graph = replays[name].graph
                is_large = sets == 1 or reserved_bytes() - before > _LARGE_RUN_BYTES
                if graph is not None and is_large:
                    pool = graph.pool()
            except Exception as error:  # noqa: BLE001
                # A candidate or a user's baseline may fail in any way; it is reported and the
                # others go on, in another pool: a capture that broke off leaves its own in use.
                pool = None
                require_gpu(name, error)
                results[name] = _failed(error)
    finally:
        gc.unfreeze()
    samples: dict[str, list[float]] = {name: [] for name in replays}
    asked = time.monotonic()
    with turn():
        # Waiting for another process is no time of this one's.
        begun = time.monotonic()
        end = begun + seconds
        if deadline is not None:
            end = max(min(end, deadline + begun - asked), begun + min(seconds, _LEAST_S))
        for rep in range(reps):
            if rep >= MIN_REPS and (time.monotonic() > end or stop()):
                break
            for name, replay in replays.items():
                try:
                    samples[name].append(replay.run() * _MICROSECONDS / sets)
                except Exception as error:
                    require_gpu(name, error)
                    raise
    for name, replay in replays.items():
        results[name] = _summary(samples[name], replay.note)
        replay.release()
    return {name: results[name] for name in entries}


class _Replay:
    """One entry, ready to run over all input sets; ``graph`` is None where it has to be called."""

    def __init__(
        self, entry: Entry, sets: int, graph: torch.cuda.CUDAGraph | None, note: str
    ) -> None:
        import torch

        self.entry = entry
        self.sets = sets
        self.graph = graph
        self.note = note
        self.start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def run(self) -> float:
        """Milliseconds of one run over all sets."""
        self.start.record()
        if self.graph is not None:
            self.graph.replay()
        else:
            for number in range(self.sets):
                self.entry(number)
        self.end.record()
        self.end.synchronize()
        return float(self.start.elapsed_time(self.end))

    def release(self) -> None:
        """Give the graph's memory back."""
        if self.graph is not None:
            self.graph.reset()


def _captured(entry: Entry, sets: int, pool: Any = None) -> _Replay:
    import torch

    # Compiling, loading and choosing of algorithms happen here and not in the capture; on every
    # set, for an entry may prepare something for each of its inputs.
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for number in range(sets):
            entry(number)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()

    def run() -> None:
        for number in range(sets):
            entry(number)

    graph, why = captured(run, pool)
    if why is not None and is_out_of_memory(why):
        raise why
    # What else forbids a capture (a synchronisation, a copy to the host) does not forbid a call.
    note = f"timed call by call, launch cost included: {_short(why)}" if why else ""
    replay = _Replay(entry, sets, graph, note)
    replay.run()
    return replay


def _summary(samples: Sequence[float], note: str) -> Timed:
    low, middle, high = np.quantile(np.asarray(samples), (0.2, 0.5, 0.8))
    return Timed(float(middle), float(low), float(high), len(samples), note)


def _failed(error: Exception) -> Timed:
    nothing = float("inf")
    return Timed(nothing, nothing, nothing, 0, failure=_short(error))


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def captured(
    run: Callable[[], Any], pool: Any = None
) -> tuple[torch.cuda.CUDAGraph | None, Exception | None]:
    """What ``run`` launches as a CUDA graph, with memory of ``pool`` if there is one, or None and
    why it cannot be captured.

    ``run`` has been called before: compiling, loading and choosing of algorithms are no part of a
    capture. ``reset()`` of the graph gives its memory back.
    """
    import torch

    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    pool = pool or torch.cuda.graph_pool_handle()
    try:
        # What other threads of the user's do meanwhile is no part of it, and does not end it.
        with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
            run()
    except Exception as error:  # noqa: BLE001  whatever forbids a capture does not forbid a call
        # A capture that breaks off leaves its own stream behind as the current one.
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        _abandon(graph, pool)
        return None, error
    return graph, None


def _abandon(graph: torch.cuda.CUDAGraph, pool: Any) -> None:
    """Have the memory of a capture that failed back.

    Where CUDA has invalidated it, torch does not learn that it is over: the allocator of this
    process would free nothing any more, not even at ``empty_cache`` or when memory is short.
    """
    import torch

    try:
        graph.pool()
    except RuntimeError:
        _FAILED_GRAPHS.append(graph)
        device = torch.cuda.current_device()
        # What has not even begun to allocate has nothing to end.
        with contextlib.suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(device, pool)  # noqa: SLF001  no public one
            torch._C._cuda_releasePool(device, pool)  # noqa: SLF001
    else:
        graph.reset()
