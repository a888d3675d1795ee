"""A kernel that breaks the GPU context: it is named, alone, and nothing is tried after it."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from mirage_py.errors import CompileError, LostGpuError
from mirage_py.runtime.base.gpu_context import gpu_is_lost, require_gpu
from mirage_py.runtime.timing import timing
from mirage_py.runtime.timing.timing import time_interleaved
from mirage_py.runtime.worker_main import worker

ILLEGAL = "CUDA error: an illegal memory access was encountered\nSearch for it in the manual."


class Gpu:
    """Stands for the device: ``words`` are what it says to whoever waits for it."""

    words = ""

    def synchronize(self) -> None:
        if self.words:
            raise RuntimeError(self.words)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    device = Gpu()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    monkeypatch.setattr(timing, "turn", contextlib.nullcontext)
    return device


class Replay:
    """An entry that was captured."""

    note = ""
    graph = None

    def __init__(self, entry, sets, pool=None) -> None:
        entry(0)
        self.entry = entry

    def run(self) -> float:
        self.entry(1)
        return 1.0

    def release(self) -> None:
        """It has nothing to give back."""


def test_what_says_that_the_gpu_is_lost(gpu: Gpu, monkeypatch: pytest.MonkeyPatch):
    assert not gpu_is_lost()
    gpu.words = ILLEGAL
    assert gpu_is_lost()
    gpu.words = "CUDA error: operation not permitted when stream is capturing"
    assert not gpu_is_lost()
    gpu.words = ILLEGAL
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not gpu_is_lost()


def test_an_error_that_leaves_the_gpu_alone_is_let_be(gpu: Gpu):
    require_gpu("plan 3", ValueError("of another kind"))
    gpu.words = ILLEGAL
    with pytest.raises(LostGpuError, match="plan 3 broke this process's GPU context") as caught:
        require_gpu("plan 3", RuntimeError(ILLEGAL))
    assert caught.value.launched == "plan 3"
    assert caught.value.why == ILLEGAL.splitlines()[0]


@pytest.mark.parametrize("place", [0, 1])
def test_who_breaks_it_while_being_timed_is_named(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, place: int
):
    """When it is called first, and when it is replayed."""
    monkeypatch.setattr(timing, "_captured", Replay)

    def breaks(number: int) -> None:
        if number == place:
            gpu.words = ILLEGAL
            raise RuntimeError(ILLEGAL)

    entries = {"eager": lambda _: None, "plan 0": breaks, "plan 1": lambda _: None}
    with pytest.raises(LostGpuError) as caught:
        time_interleaved(entries, 2, reps=3)
    assert caught.value.launched == "plan 0"


def test_who_only_fails_costs_nobody_else(gpu: Gpu, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timing, "_captured", Replay)

    def fails(_: int) -> None:
        raise ValueError("no such layout")

    found = time_interleaved({"plan 0": fails, "plan 1": lambda _: None}, 2, reps=3)
    assert found["plan 0"].failure == "ValueError: no such layout"
    assert found["plan 1"].ran


def test_a_capture_that_broke_off_shares_its_pool_with_none_after_it(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
):
    pools: list[object] = []

    class Captured(Replay):
        def __init__(self, entry, sets, pool=None) -> None:
            pools.append(pool)
            super().__init__(entry, sets, pool)
            self.graph = SimpleNamespace(pool=lambda: "of the first")

    monkeypatch.setattr(timing, "_captured", Captured)

    def fails(_: int) -> None:
        raise ValueError("no such layout")

    entries = {"eager": lambda _: None, "plan 0": fails, "plan 1": lambda _: None}
    time_interleaved(entries, 1, reps=3)
    assert pools == [None, "of the first", None]


@pytest.mark.parametrize("kind", [CompileError, ValueError])
def test_a_worker_without_its_gpu_is_of_no_more_use(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
):
    """Whoever says it: the driver's words come as an error of ours."""

    def service(_task) -> None:
        raise kind("the launch fails")

    monkeypatch.setitem(worker.SERVICES, "numerical_check", service)
    assert worker._answer({"service": "numerical_check"})["spoiled"] is False
    gpu.words = ILLEGAL
    assert worker._answer({"service": "numerical_check"})["spoiled"] is True
