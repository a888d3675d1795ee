"""Inductor's autotuning takes turns, whichever of its methods measures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from torch._inductor.runtime import benchmarking

from benchmarks.peers import autotuning_turns


def test_every_measurement_is_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    depths: list[int] = []
    inside: list[None] = []

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        inside.append(None)
        yield
        inside.pop()

    class Timer:
        def benchmark_gpu(self) -> float:
            depths.append(len(inside))
            return 1.0

        def benchmark_many_gpu(self) -> list[float]:
            return [self.benchmark_gpu(), self.benchmark_gpu()]

    monkeypatch.setattr(autotuning_turns, "turn", turn)
    monkeypatch.setattr(benchmarking, "benchmarker", Timer())
    autotuning_turns.tune_in_turns()
    assert benchmarking.benchmarker.benchmark_many_gpu() == [1.0, 1.0]
    assert benchmarking.benchmarker.benchmark_gpu() == 1.0
    assert depths == [2, 2, 1]
