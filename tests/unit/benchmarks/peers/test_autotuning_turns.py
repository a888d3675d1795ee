"""Inductor's autotuning takes turns, whichever of its methods measures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from torch._inductor.runtime import benchmarking

from benchmarks.peers import autotuning_turns


def test_a_measurement_that_calls_another_is_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        assert "held" not in held, "a turn is not reentrant"
        held.append("held")
        yield
        held[-1] = "given back"

    class Timer:
        def benchmark_gpu(self) -> float:
            assert held[-1] == "held"
            return 1.0

        def benchmark_many_gpu(self) -> list[float]:
            return [self.benchmark_gpu(), self.benchmark_gpu()]

    monkeypatch.setattr(autotuning_turns, "turn", turn)
    monkeypatch.setattr(benchmarking, "benchmarker", Timer())
    autotuning_turns.tune_in_turns()
    assert benchmarking.benchmarker.benchmark_many_gpu() == [1.0, 1.0]
    assert benchmarking.benchmarker.benchmark_gpu() == 1.0
    assert held == ["given back"] * 2
