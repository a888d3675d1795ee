"""The kernels of one decode step of a model, each with its time on the GPU.

python -m benchmarks.whole_models.kernels llama1b [--budget 12] [--layers 16]: compiles with the
backend, prints its log, microseconds a step, and a table by torch's profiler. It takes about three
minutes, most of it for the regions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import click
import torch

from benchmarks.whole_models.phase import Bench, log_lines
from benchmarks.whole_models.step import Steps
from benchmarks.whole_models.timing import step_times
from benchmarks.whole_models.zoo import WHOLE_MODELS
from mirage_py.runtime.timing.turns import turn

_STEPS = 4
_ROWS, _WIDTH = 24, 90


def kernel_table(spans: Iterable[tuple[str, float]], steps: int) -> list[str]:
    """A line for each kernel, by its name: microseconds a step, how often, microseconds each."""
    found: dict[str, list[float]] = {}
    for name, us in spans:
        found.setdefault(name, []).append(us)
    total = sum(map(sum, found.values())) / steps
    count = sum(map(len, found.values())) / steps
    rows = sorted(found.items(), key=lambda row: -sum(row[1]))
    lines = [
        f"{sum(times) / steps:9.1f} us {len(times) / steps:6.1f} x "
        f"{sum(times) / len(times):8.2f}  {name[:_WIDTH]}"
        for name, times in rows[:_ROWS]
    ]
    return [*lines, f"{total:9.1f} us in {count:.0f} kernels a step"]


def kernels_of(steps: Steps) -> Sequence[tuple[str, float]]:
    """The kernels of some steps, in order."""
    from torch.profiler import ProfilerActivity, profile

    steps.rewind()
    steps()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(_STEPS):
            steps()
        torch.cuda.synchronize()
    events: Any = seen.events()
    on_gpu = torch.autograd.DeviceType.CUDA  # type: ignore[attr-defined]
    return [(e.name, e.time_range.elapsed_us()) for e in events if e.device_type == on_gpu]


@click.command()
@click.argument("model", type=click.Choice(list(WHOLE_MODELS)))
@click.option("--budget", type=float, default=12.0, help="Seconds for each distinct region.")
@click.option("--layers", type=click.IntRange(min=1), help="Layers of the model.")
@click.option("--batch", type=click.IntRange(min=1), default=1)
def main(model: str, budget: float, layers: int | None, batch: int) -> None:
    """The kernels of one decode step of MODEL."""
    task = {
        "model": model, "layers": layers or WHOLE_MODELS[model].layers, "batch": batch,
        "budget": budget, "effort": "full", "max_regions": None, "whole_graph": "auto",
        "device": "cuda", "tiny": False,
    }  # fmt: skip
    begin = time.perf_counter()
    with torch.no_grad(), log_lines():
        bench = Bench(task)
        steps = bench.ours()
        bench.started(steps)
        click.echo(f"started after {time.perf_counter() - begin:.0f} s")
        click.echo(f"{step_times({model: steps}, 5.0)[model].median_us:9.1f} us a step")
        with turn():
            spans = kernels_of(steps)
        click.echo("\n".join(kernel_table(spans, _STEPS)))


if __name__ == "__main__":
    main()
