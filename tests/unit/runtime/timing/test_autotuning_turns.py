"""Inductor's autotuning takes turns, whichever of its methods measures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from torch._inductor.runtime import benchmarking

from mirage_py.runtime.timing import autotuning_turns


def test_every_measurement_is_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    depths: list[int] = []
    inside: list[None] = []

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        inside.append(None)
        yield
        inside.pop()

    class Timer:
        def benchmark_gpu(self, call: Callable[[], None]) -> float:
            depths.append(len(inside))
            call()
            return 1.0

        def benchmark_many_gpu(self, calls: list[Callable[[], None]]) -> list[float]:
            return [self.benchmark_gpu(call) for call in calls]

    compiled: list[int] = []

    def call() -> None:
        compiled.append(len(inside))

    monkeypatch.setattr(autotuning_turns, "turn", turn)
    monkeypatch.setattr(benchmarking, "benchmarker", Timer())
    monkeypatch.setattr(autotuning_turns, "_PATCHES", autotuning_turns._Patches())
    autotuning_turns.tune_in_turns()
    assert benchmarking.benchmarker.benchmark_many_gpu([call, call]) == [1.0, 1.0]
    assert benchmarking.benchmarker.benchmark_gpu(call) == 1.0
    assert depths == [2, 2, 1]
    # Whatever compiles at its first call has done so before the turn.
    assert compiled[:2] == [0, 0]
    assert compiled[-2:] == [0, 1]


def test_inductor_is_as_it_was_after_the_last_block(monkeypatch: pytest.MonkeyPatch) -> None:
    class Timer:
        def benchmark_gpu(self, call: Callable[[], None]) -> float:
            return 1.0

    before = Timer.benchmark_gpu
    monkeypatch.setattr(benchmarking, "benchmarker", Timer())
    monkeypatch.setattr(autotuning_turns, "_PATCHES", autotuning_turns._Patches())
    assert autotuning_turns.can_take_turns()
    with autotuning_turns.tuning_in_turns():
        with autotuning_turns.tuning_in_turns():
            assert Timer.benchmark_gpu is not before
        assert Timer.benchmark_gpu is not before
    assert Timer.benchmark_gpu is before


def test_another_inductor_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarking, "benchmarker", object())
    assert not autotuning_turns.can_take_turns()
    with autotuning_turns.tuning_in_turns():
        pass
