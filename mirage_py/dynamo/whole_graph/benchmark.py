"""The whole-graph benchmark: a graph with regions against the same graph by Inductor alone.

Each region has been measured against its own operators. What it costs around it is not in that: to
Inductor a region is a wall, over which nothing is fused, and what it reads and writes has a layout.
So both graphs are called on the user's inputs, once: the verdict is cached on disk.

Graphs of training are not benchmarked: their two parts are compiled at different times, and what
lies between them is known after the first step only.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.whole_graph.real_inputs import (
    NotBenchmarkedError,
    RandomStates,
    SavedInputs,
    real_inputs,
    written_inputs,
)
from mirage_py.dynamo.whole_graph.timer import Clock, CompiledGraph, times_on_gpu
from mirage_py.dynamo.whole_graph.uncaptured import Uncaptured
from mirage_py.dynamo.whole_graph.verdicts import (
    CHAINED,
    OURS,
    TORCH,
    Verdict,
    cache_verdict,
    cached_verdict,
    verdict_key,
)
from mirage_py.errors import LostGpuError
from mirage_py.runtime.base.gpu_context import require_gpu
from mirage_py.settings import Settings

log = logging.getLogger("mirage_py.dynamo")

Compiled = Callable[..., Any]
# From a compiled graph with regions to the same with these as a chain, if they can be one.
Chained = Callable[[Compiled], Compiled | None]
# Torch's graph has to be faster by this share. Within it chance decides, and the verdict would be
# another one at each run; of ours it is known that each part is faster by itself.
_MARGIN = 0.01
_USED = {
    OURS: "regions are used",
    CHAINED: "regions are used, chained",
    TORCH: "it is left to torch.compile",
}
# Operators that wait for other processes, which may not be timing anything.
_OF_MANY = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem")


def clock_for(device: str) -> Clock | None:
    """What times graphs on a kind of device, if anything does."""
    return times_on_gpu if device == "cuda" else None


class WholeGraphBenchmark:
    """The benchmark of one Dynamo graph compiled for inference."""

    def __init__(self, options: BackendOptions, target: str) -> None:
        self._options = options
        self._target = target
        self._uses_cache = options.cache and not Settings.from_env().no_cache
        self._entered = 0
        self._key = ""
        self._cached: Verdict | None = None
        self._unfit = ""
        self._metadata: Any = None
        self._ours = Uncaptured()

    def is_lost(self, graph: GraphModule, inputs: Sequence[Any]) -> bool:
        """Enter the graph that AOTAutograd has made, before it is cut: whether the cache says that
        torch's is faster.
        """
        if not self._is_wanted(inputs):
            return False
        self._entered += 1
        try:
            self._enter(graph, inputs)
        # What is odd to the benchmark may be well served by regions.
        except Exception as error:  # noqa: BLE001
            self._unfit = f"{type(error).__name__}: {error}"
        if self._cached is None:
            return False
        _report(self._cached, "benchmarked before")
        return self._cached.winner == TORCH

    def _is_wanted(self, inputs: Sequence[Any]) -> bool:
        if self._options.whole_graph == "auto":
            # Where regions have been measured, there is a clock for the whole.
            kinds = [x.device.type for x in inputs if isinstance(x, torch.Tensor)]
            measured = self._options.effort != "none"
            return measured and any(clock_for(kind) is not None for kind in kinds)
        return self._options.whole_graph == "race"

    def _enter(self, graph: GraphModule, inputs: Sequence[Any]) -> None:
        from torch._guards import TracingContext

        self._unfit = self._unfit or why_not_benchmarked(graph)
        context = TracingContext.try_get()
        self._metadata = context.fw_metadata if context is not None else None
        self._key = verdict_key(graph, inputs, self._options, self._target)
        self._cached = cached_verdict(self._key) if self._uses_cache else None

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Ours is compiled for the benchmark, if there is to be one."""
        if not self._entered or self._cached is not None:
            yield
            return
        with self._ours.watched():
            yield

    def winner(
        self,
        ours: Compiled,
        by_torch: Callable[[], Compiled],
        module: GraphModule,
        inputs: Sequence[Any],
        chained: Chained | None = None,
    ) -> Compiled:
        """``ours``, the same ``chained``, or what ``by_torch`` compiles of dynamo's ``module``;
        ``inputs`` are afterwards what they were, as are states of random numbers.

        Raises LostGpuError.
        """
        from torch._dynamo.exc import RestartAnalysis

        if chained and self._cached is not None and self._cached.winner == CHAINED:
            return chained(ours) or ours
        if not self._entered or self._cached is not None:
            return ours
        try:
            return self._benchmarked(ours, by_torch, module, inputs, chained)
        except NotBenchmarkedError as reason:
            why = str(reason)
        except LostGpuError as error:
            if error.launched == OURS and self._uses_cache:
                words = f"with regions it broke the GPU context: {error.why}"
                cache_verdict(self._key, Verdict(TORCH, words))
            raise
        except torch.OutOfMemoryError:
            why = "there is no memory for it"
        # Dynamo's own way to begin again.
        except RestartAnalysis:
            raise
        # Ours works, whatever went wrong in finding out whether something else is faster.
        except Exception as error:  # noqa: BLE001
            require_gpu(TORCH, error)
            why = f"{type(error).__name__}: {error}"
        _give_back_memory()
        log.info("whole graph: not benchmarked: %s", why)
        return ours

    def _benchmarked(
        self,
        ours: Compiled,
        by_torch: Callable[[], Compiled],
        module: GraphModule,
        inputs: Sequence[Any],
        chained: Chained | None,
    ) -> Compiled:
        if self._entered > 1:
            raise NotBenchmarkedError("it was compiled in parts")
        if self._unfit:
            raise NotBenchmarkedError(self._unfit)
        given = real_inputs(inputs)
        written = written_inputs(given, self._metadata, module)
        device, clock = device_and_clock(given)
        theirs = Uncaptured()
        begin = time.perf_counter()
        with theirs.watched():
            plain = by_torch()
        log.info("all of it by Inductor: %.1f s", time.perf_counter() - begin)
        candidates = {
            OURS: CompiledGraph(lambda: ours(*given), self._ours.is_captured),
            TORCH: CompiledGraph(lambda: plain(*given), theirs.is_captured),
        }
        chain = chained(ours) if chained else None
        if chain is not None:
            candidates[CHAINED] = CompiledGraph(lambda: chain(*given), self._ours.is_captured)
        current = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
        # Nobody's trace.
        with self._ours.passed_by(), theirs.passed_by(), _disable_current_modes(), current:
            times = timed(candidates, written, device, clock)
        _give_back_memory()
        verdict = _verdict(times)
        _report(verdict, "benchmarked")
        if self._uses_cache and max(times.values()) < float("inf"):
            cache_verdict(self._key, verdict)
        served = {OURS: ours, CHAINED: chain or ours, TORCH: plain}
        return served[verdict.winner]


def timed(
    candidates: dict[str, CompiledGraph],
    written: Sequence[torch.Tensor],
    device: torch.device,
    clock: Clock,
) -> dict[str, float]:
    """Microseconds a call of each; what they write to, and random numbers, are as before."""
    saved, random = SavedInputs(written), RandomStates(device)
    lost = False
    try:
        return clock(candidates, saved.restore)
    except LostGpuError:  # nothing can be put back, and to try would hide this error
        lost = True
        raise
    finally:
        if not lost:
            saved.restore()
            random.restore()


def _verdict(times: dict[str, float]) -> Verdict:
    words = f"with regions {_us(times[OURS])}"
    if CHAINED in times:
        words += f", chained {_us(times[CHAINED])}"
    words += f", by torch.compile {_us(times[TORCH])}"
    # Who is not the plainest of what is ours has to be faster beyond chance.
    winner = OURS
    for other in (CHAINED, TORCH):
        if times.get(other, float("inf")) < times[winner] * (1 - _MARGIN):
            winner = other
    return Verdict(winner, words)


def _us(time_us: float) -> str:
    return f"{time_us:.1f} us" if time_us < float("inf") else "it fails"


def _report(verdict: Verdict, how: str) -> None:
    used = _USED[verdict.winner]
    log.info("whole graph: %s (%s): %s", verdict.words, how, used)


def why_not_benchmarked(graph: GraphModule) -> str:
    """Why a graph cannot be called a few times more than the user does; empty where it can."""
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        namespace = getattr(node.target, "namespace", "")
        if namespace in _OF_MANY:
            return f"{node.target} waits for other processes"
        if "with_effects" in str(node.target):
            return f"{node.target} does more than compute"
    return ""


def device_and_clock(given: Sequence[Any]) -> tuple[torch.device, Clock]:
    """Raises NotBenchmarkedError where there is not one device, or no clock for it."""
    devices = list(dict.fromkeys(x.device for x in given if isinstance(x, torch.Tensor)))
    on_gpu = [d for d in devices if d.type == "cuda"]
    chosen = on_gpu or devices
    if len(chosen) != 1:
        raise NotBenchmarkedError(f"it is on {len(chosen)} devices")
    clock = clock_for(chosen[0].type)
    if clock is None:
        raise NotBenchmarkedError("nothing is timed on a CPU")
    if on_gpu and torch.cuda.is_current_stream_capturing():
        raise NotBenchmarkedError("it is compiled inside a CUDA graph")
    return chosen[0], clock


def _give_back_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
