"""The timing of whole models: candidates in alternation, a row of steps at a time.

The weights of a model exceed the L2, so each step finds them in DRAM. What is timed is what a user
sees: steps that are called one after the other, with what the host takes where that is more.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.whole_models.step import Steps
from benchmarks.whole_models.zoo import MARGIN
from mirage_py.runtime.timing.turns import turn

# Untimed calls after a rewind, so that the GPU has work when the clock starts.
_LEAD = 4
_CALLS = 24
_ROUNDS = 15
_FEWEST_ROUNDS = 5
_WARM_UP_ROUNDS = 2
assert _LEAD + _CALLS <= MARGIN


@dataclass(frozen=True, slots=True)
class StepTime:
    """Microseconds a step over the rounds; ``host_us``: what the host takes to issue one."""

    median_us: float
    p20_us: float
    p80_us: float
    host_us: float
    rounds: int

    @property
    def json(self) -> dict[str, Any]:
        """For the result file."""
        return {
            "us": round(self.median_us, 1),
            "p20_us": round(self.p20_us, 1),
            "p80_us": round(self.p80_us, 1),
            "host_us": round(self.host_us, 1),
            "rounds": self.rounds,
        }


def step_times(contestants: Mapping[str, Steps], seconds: float) -> dict[str, StepTime]:
    """Time all on the current GPU, while other processes wait that measure on it; after ``seconds``
    no round begins beyond the fifth.
    """
    with turn():
        return _step_times(contestants, seconds)


def _step_times(contestants: Mapping[str, Steps], seconds: float) -> dict[str, StepTime]:
    start = time.monotonic()
    for _ in range(_WARM_UP_ROUNDS):
        for steps in contestants.values():
            _round(steps)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for number in range(_ROUNDS):
        if number >= _FEWEST_ROUNDS and time.monotonic() - start > seconds:
            break
        for name, steps in contestants.items():
            samples[name].append(_round(steps))
    return {name: _summary(found) for name, found in samples.items()}


def _round(steps: Steps) -> tuple[float, float]:
    """Microseconds a step on the GPU's clock, and on the host's until it was issued."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
    steps.rewind()
    for _ in range(_LEAD):
        steps()
    events[0].record()
    begin = time.perf_counter()
    for _ in range(_CALLS):
        steps()
    host_s = time.perf_counter() - begin
    events[1].record()
    events[1].synchronize()
    return events[0].elapsed_time(events[1]) * 1e3 / _CALLS, host_s * 1e6 / _CALLS


def _summary(samples: list[tuple[float, float]]) -> StepTime:
    on_gpu = [us for us, _ in samples]
    fifths = statistics.quantiles(on_gpu, n=5, method="inclusive")
    host = statistics.median(us for _, us in samples)
    return StepTime(statistics.median(on_gpu), fifths[0], fifths[3], host, len(samples))
