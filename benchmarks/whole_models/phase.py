"""One process of a row: the first start of a model, or the second start and the measurement.

python -m benchmarks.whole_models.phase first_start|second_start TASK.json ANSWER.json

A start is what a user waits for: from the call of torch.compile to the first result, without what
loads libraries and makes the model.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.compiled import compiled
from benchmarks.whole_models.start_counts import start_counts
from benchmarks.whole_models.step import Function, Steps, step_function
from benchmarks.whole_models.timing import step_times
from benchmarks.whole_models.zoo import WHOLE_MODELS, built
from mirage_py.runtime.base.atomic import write_text

Json = dict[str, Any]
Task = Mapping[str, Any]

OURS, EAGER = "ours", "eager"
# What torch.compile is told for each rival.
PEERS: dict[str, Json] = {
    "compile": {},
    "compile_max_autotune": {"mode": "max-autotune"},
}
# Torch's CUDA graphs warm up at the first call and capture at the second.
_CALLS = 3


class Bench:
    """A model of a task, and what runs it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.model = WHOLE_MODELS[task["model"]]
        begin = time.perf_counter()
        self.module, self.config = built(
            self.model, task["layers"], task["device"], tiny=task["tiny"]
        )
        self.build_s = time.perf_counter() - begin

    def steps(self, **how: Any) -> Steps:
        """Steps by torch.compile with the arguments ``how``, in eager without any."""
        function: Function = step_function(self.module)
        if how:
            function = compiled(function, fullgraph=True, **how)
        return Steps(self.model, self.module, self.config, self.task["batch"], function)

    def ours(self) -> Steps:
        """Steps with our backend, the rest by Inductor with max-autotune whatever the effort."""
        from mirage_py.dynamo.backend import mirage_py

        # torch takes a mode or options.
        tuned = {} if self.task["effort"] == "full" else max_autotune()
        options: Json = {"cuda_graphs": True, "inductor": tuned}
        if self.task["device"] == "cpu":
            options = {"on_cpu": "reference", "rest": "eager", "target": "h200"}
        asked = {n: self.task[n] for n in ("effort", "budget", "max_regions", "whole_graph")}
        return self.steps(backend=mirage_py, options=options | asked)

    def exact_logits(self) -> torch.Tensor:
        """Of the same step, in float32 by a model of float32 with the same weights and cache."""
        module = copy.deepcopy(self.module).float()
        function = step_function(module)
        steps = Steps(self.model, self.module, self.config, self.task["batch"], function)
        steps.to_float32()
        return self.logits(steps)

    def started(self, steps: Steps) -> float:
        """Seconds to the first result; afterwards everything is captured."""
        begin = time.perf_counter()
        steps()
        self._wait()
        seconds = time.perf_counter() - begin
        for _ in range(_CALLS - 1):
            steps.rewind()
            steps()
        self._wait()
        return seconds

    def logits(self, steps: Steps) -> torch.Tensor:
        """In float32, of the first step after the prompt."""
        steps.rewind()
        return steps().float().clone()

    def _wait(self) -> None:
        if self.task["device"] == "cuda":
            torch.cuda.synchronize()


def max_autotune() -> Json:
    """What the mode of this name sets in Inductor, CUDA graphs aside."""
    from torch._inductor import list_mode_options

    found: Json = list_mode_options("max-autotune-no-cudagraphs")
    return found


def first_start(task: Task) -> Json:
    """Ours with empty caches."""
    return _start(Bench(task))[1]


def measured_start(task: Task) -> Json:
    """Ours with the caches that are there, then all candidates in turns."""
    bench = Bench(task)
    ours, answer = _start(bench)
    candidates = {EAGER: bench.steps(), OURS: ours}
    start_s: Json = {}
    faults: Json = {}
    for name in task["peers"]:
        steps = bench.steps(**(PEERS[name] or {"mode": "default"}))
        try:
            # With what the start of ours left in Inductor's caches.
            start_s[name] = round(bench.started(steps), 1)
        # A rival that fails is shown as such, and the others are measured.
        except Exception as error:  # noqa: BLE001
            faults[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        candidates[name] = steps
    bench.started(candidates[EAGER])
    errors = _errors(bench, candidates)
    exact = bench.exact_logits()
    exact_errors = {n: _off(bench.logits(steps), exact) for n, steps in candidates.items()}
    times: Json = {}
    if task["device"] == "cuda":
        found = step_times(candidates, task["timing_s"])
        times = {name: time.json for name, time in found.items()}
        # Once more: what overwrites itself, or another, shows only after many calls.
        after = _errors(bench, candidates)
        errors = {name: max(error, after[name]) for name, error in errors.items()}
    return {
        **answer,
        "peers_start_s": start_s,
        "peers_failed": faults,
        "errors": errors,
        "float32_errors": exact_errors,
        "times": times,
    }


def _start(bench: Bench) -> tuple[Steps, Json]:
    from torch._dynamo.utils import counters

    counters.clear()
    with start_counts() as counts, log_lines() as lines:
        steps = bench.ours()
        seconds = bench.started(steps)
    return steps, {
        "seconds": round(seconds, 1),
        "build_s": round(bench.build_s, 1),
        "read_bytes": steps.read_bytes,
        "counts": counts,
        # Inductor's own caches: graphs that it looked up, and those that it compiled.
        "inductor": {name: n for name, n in counters["inductor"].items() if "cache" in name},
        "log": lines,
    }


def _errors(bench: Bench, candidates: Mapping[str, Steps]) -> dict[str, float]:
    """How far logits are from those of eager: the largest difference over the largest logit."""
    wanted = bench.logits(candidates[EAGER])
    return {n: _off(bench.logits(steps), wanted) for n, steps in candidates.items() if n != EAGER}


def _off(logits: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((logits - wanted).abs().max() / wanted.abs().max())


@contextmanager
def log_lines() -> Iterator[list[str]]:
    """What the backend logs; printed too, for whoever reads along."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            print(f"{time.perf_counter() - begin:6.1f} s  {lines[-1]}", flush=True)

    begin = time.perf_counter()
    log = logging.getLogger("mirage_py.dynamo")
    handler, level = Keep(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


PHASES = {"first_start": first_start, "second_start": measured_start}


def main(phase: str, task: Path, answer: Path) -> None:
    """Do a phase of the task in a file, and leave the answer in another."""
    with torch.no_grad():
        found = PHASES[phase](json.loads(task.read_text(encoding="utf-8")))
    write_text(answer, json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
