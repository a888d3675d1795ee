"""The kernels of one decode step of a model, as a CUDA graph runs them.

python -m benchmarks.whole_models.kernels llama1b [--budget 4] [--layers 16]: compiles with the
backend, captures a step, prints microseconds a step and a table from a trace of replays. All
kernels of regions have one name, so a row is a name with its blocks and threads. Kernels overlap
where they start early: what one adds is the time from the end of what ended before to its own.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.peers.compiled import compiled
from benchmarks.whole_models.chains import Captured
from benchmarks.whole_models.phase import log_lines
from benchmarks.whole_models.step import Steps, step_function
from benchmarks.whole_models.zoo import WHOLE_MODELS, built
from mirage_py.runtime.timing.turns import turn

_STEPS = 4
_ROWS, _WIDTH = 24, 70


@dataclass(frozen=True, slots=True)
class Span:
    """A kernel on the GPU: its name with blocks and threads, when it began and how long it took."""

    name: str
    start_us: float
    us: float


def kernel_table(spans: Sequence[Span], steps: int) -> list[str]:
    """A line for each kernel: what all of it adds to a step, how often, and of each what it adds
    and how long it takes.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    last_us: float | None = None
    for span in sorted(spans, key=lambda s: s.start_us):
        end_us = span.start_us + span.us
        added = span.us if last_us is None else max(0.0, end_us - last_us)
        last_us = end_us if last_us is None else max(last_us, end_us)
        found.setdefault(span.name, []).append((added, span.us))
    rows = sorted(found.items(), key=lambda row: -sum(added for added, _ in row[1]))
    lines = []
    for name, times in rows[:_ROWS]:
        added, took = (sum(column) for column in zip(*times, strict=True))
        count = len(times)
        lines.append(
            f"{added / steps:9.1f} us {count / steps:6.1f} x {added / count:8.2f} "
            f"(takes {took / count:.2f})  {name}"
        )
    total = sum(added for times in found.values() for added, _ in times) / steps
    return [*lines, f"{total:9.1f} us in {len(spans) / steps:.0f} kernels a step"]


def spans_of(events: Iterable[dict[str, Any]]) -> list[Span]:
    """The kernels and copies of a trace; annotations, which hold several of them, are none."""
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    found = []
    for event in events:
        if event.get("cat") in kinds:
            given = event.get("args", {})
            sizes = [given[key] for key in ("grid", "block") if key in given]
            words = " x ".join("*".join(str(n) for n in size if n != 1) or "1" for size in sizes)
            name = f"{event['name'][:_WIDTH]} {words}".strip()
            found.append(Span(name, float(event["ts"]), float(event["dur"])))
    return found


def kernels_of(step: Captured) -> list[Span]:
    """The kernels of some replays."""
    from torch.profiler import ProfilerActivity, profile

    step.steps.rewind()
    step.graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(_STEPS):
            step.graph.replay()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        return spans_of(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])


@click.command()
@click.argument("model", type=click.Choice(list(WHOLE_MODELS)))
@click.option("--budget", type=float, default=4.0, help="Seconds for each distinct region.")
@click.option("--layers", type=click.IntRange(min=1), help="Layers of the model.")
@click.option("--batch", type=click.IntRange(min=1), default=1)
@click.option("--chain", type=click.Choice(["off", "on"]), default="off", help="As the backend's.")
def main(model: str, budget: float, layers: int | None, batch: int, chain: str) -> None:
    """The kernels of one decode step of MODEL."""
    from mirage_py.dynamo.backend import mirage_py

    chosen = WHOLE_MODELS[model]
    options = {"effort": "full", "budget": budget, "whole_graph": "trust", "chain": chain}
    with torch.no_grad(), log_lines():
        module, config = built(chosen, layers or chosen.layers, "cuda", tiny=False)
        fast = compiled(step_function(module), fullgraph=True, backend=mirage_py, options=options)
        steps = Steps(chosen, module, config, batch, fast)
        # Whoever compiles waits for workers that have turns of their own.
        steps()
        with turn():
            step = Captured(steps)
            samples = sorted(step.round_us() for _ in range(9))
            click.echo(f"{samples[4]:9.1f} us a step, {samples[0]:.1f} to {samples[-1]:.1f}")
            click.echo("\n".join(kernel_table(kernels_of(step), _STEPS)))


if __name__ == "__main__":
    main()
