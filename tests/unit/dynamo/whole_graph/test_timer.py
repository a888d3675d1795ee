"""The timer of whole graphs, on a simulated GPU: what counts, and what does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch

from mirage_py.dynamo.whole_graph import timer
from mirage_py.dynamo.whole_graph.timer import CompiledGraph, times_on_gpu
from mirage_py.errors import LostGpuError


class Gpu:
    """Time passes where something is called."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.left = 1  # steps that the inputs have room for
        self.graphs: list[Graph] = []

    def step(self, time_us: float) -> Callable[[], None]:
        def call() -> None:
            if not self.left:
                raise RuntimeError("no room in the cache")
            self.left -= 1
            self.now_us += time_us

        return call

    def restore(self) -> None:
        self.left = 1
        self.now_us += 1000.0


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.at_us = 0.0

    def record(self) -> None:
        self.at_us = self._gpu.now_us

    def elapsed_time(self, other: Event) -> float:
        return (other.at_us - self.at_us) / 1e3


class Graph:
    """What was captured: twice as fast as called."""

    def __init__(self, gpu: Gpu, run: Callable[[], object]) -> None:
        self._gpu, self._run = gpu, run
        self.is_reset = False

    def replay(self) -> None:
        before = self._gpu.now_us
        self._run()
        self._gpu.now_us -= (self._gpu.now_us - before) / 2

    def reset(self) -> None:
        self.is_reset = True


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()

    def captured(run: Callable[[], object]) -> tuple[Graph | None, Exception | None]:
        found.graphs.append(Graph(found, run))
        return found.graphs[-1], None

    monkeypatch.setattr(timer.time, "monotonic", lambda: 1e-6 * found.now_us)
    monkeypatch.setattr(timer, "_event", lambda: Event(found))
    monkeypatch.setattr(timer, "captured", captured)
    monkeypatch.setattr(timer, "turn", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return found


def test_steps_count_and_what_puts_them_back_does_not(gpu: Gpu):
    candidates = {
        "ours": CompiledGraph(gpu.step(90.0), is_captured=False),
        "torch": CompiledGraph(gpu.step(100.0), is_captured=False),
    }
    found = times_on_gpu(candidates, gpu.restore)
    assert found == {"ours": pytest.approx(90.0), "torch": pytest.approx(100.0)}
    assert gpu.graphs == []


def test_what_is_captured_for_the_user_is_captured_here_and_given_back(gpu: Gpu):
    candidates = {
        "ours": CompiledGraph(gpu.step(90.0), is_captured=False),
        "torch": CompiledGraph(gpu.step(100.0), is_captured=True),
    }
    found = times_on_gpu(candidates, gpu.restore)
    assert found == {"ours": pytest.approx(90.0), "torch": pytest.approx(50.0)}
    assert [g.is_reset for g in gpu.graphs] == [True]


def test_a_graph_that_cannot_be_captured_is_called(gpu: Gpu, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timer, "captured", lambda _: (None, RuntimeError("it waits")))
    found = times_on_gpu({"ours": CompiledGraph(gpu.step(90.0), is_captured=True)}, gpu.restore)
    assert found == {"ours": pytest.approx(90.0)}


def test_who_fails_is_out_of_the_race(gpu: Gpu):
    def fails() -> None:
        raise ValueError("not today")

    candidates = {
        "ours": CompiledGraph(fails, is_captured=False),
        "torch": CompiledGraph(gpu.step(100.0), is_captured=False),
    }
    found = times_on_gpu(candidates, gpu.restore)
    assert found == {"ours": float("inf"), "torch": pytest.approx(100.0)}


@pytest.mark.parametrize("where", ["call", "capture"])
def test_without_memory_there_is_no_race(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, where: str):
    full = torch.OutOfMemoryError("full")

    def fails() -> None:
        raise full

    if where == "capture":
        monkeypatch.setattr(timer, "captured", lambda _: (None, full))
    candidates = {
        "ours": CompiledGraph(gpu.step(1.0), is_captured=False),
        "torch": CompiledGraph(fails if where == "call" else gpu.step(1.0), is_captured=True),
    }
    with pytest.raises(torch.OutOfMemoryError):
        times_on_gpu(candidates, gpu.restore)


def test_who_breaks_the_gpu_is_named(gpu: Gpu, monkeypatch: pytest.MonkeyPatch):
    calls = []

    def breaks() -> None:
        calls.append(1)
        if len(calls) == 5:  # while it is timed
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def require_gpu(launched: str, error: Exception) -> None:
        raise LostGpuError(str(error), launched=launched)

    monkeypatch.setattr(timer, "require_gpu", require_gpu)
    candidates = {
        "torch": CompiledGraph(gpu.step(1.0), is_captured=False),
        "ours": CompiledGraph(breaks, is_captured=False),
    }
    with pytest.raises(LostGpuError) as caught:
        times_on_gpu(candidates, gpu.restore)
    assert caught.value.launched == "ours"


def test_long_steps_are_called_seldom(gpu: Gpu):
    counted = []
    step = gpu.step(2e5)

    def call() -> None:
        counted.append(1)
        step()

    times_on_gpu({"ours": CompiledGraph(call, is_captured=False)}, gpu.restore)
    # Twice in each round, one of them off the clock, and for four seconds.
    assert len(counted) == timer._WARM_UPS + 2 + 2 * 9
