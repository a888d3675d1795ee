"""A decode loop whose cache grows: every context from the prompt on, one token a step.

    python -m benchmarks.whole_models.growing_context [--tokens 303] [--layers 2] [-o OUT]

Ours beside eager and torch.compile with dynamic shapes, each with a ``DynamicCache`` of its own, a
whole loop in turns; a step is timed on the host until its logits are there, as whoever samples
waits for them. Says how many graphs and searches that took, at how many contexts the operators of a
region had to run, and how far logits are from those in float32. ``--smoke`` runs a tiny model on
the CPU, regions as their programs in plain PyTorch: all but the clock.
"""

from __future__ import annotations

import contextlib
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.peers.compiled import compiled
from benchmarks.report.provenance import commit
from benchmarks.whole_models.phase import EAGER, OURS, log_lines
from benchmarks.whole_models.step import cache_name, step_function
from benchmarks.whole_models.zoo import WHOLE_MODELS, built
from mirage_py.runtime.timing.turns import turn

Json = dict[str, Any]
Step = Callable[..., torch.Tensor]

_PEERS: dict[str, Json] = {
    "compile": {},
    "compile_max_autotune": {"mode": "max-autotune-no-cudagraphs"},
}
# Contexts whose logits are compared, besides the first and the last.
_COMPARED = (3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 200, 255, 256, 257, 300)
# Ends of the ranges of contexts that have a median each.
_RANGES = (64, 256)
_STALL_S = 0.2


class Loop:
    """Tokens one after the other through a model, from a prompt to ``last`` tokens in the cache."""

    def __init__(self, module: Any, config: Any, prompt: int, last: int) -> None:
        self.contexts = range(prompt + 1, last + 1)
        self._module = module
        self._config = config
        self._device = next(module.parameters()).device
        drawn = torch.Generator(self._device).manual_seed(1)
        shape = (1, last)
        self._ids = torch.randint(config.vocab_size, shape, generator=drawn, device=self._device)

    def run(self, step: Step) -> tuple[dict[int, float], dict[int, torch.Tensor]]:
        """Seconds of each context, and the logits of those that are compared."""
        from transformers import DynamicCache

        cache: Any = DynamicCache(config=self._config)
        first = self.contexts.start - 1
        given = {cache_name(): cache}
        self._module(input_ids=self._ids[:, :first], use_cache=True, **given)
        seconds: dict[int, float] = {}
        logits: dict[int, torch.Tensor] = {}
        kept = {*_COMPARED, self.contexts[0], self.contexts[-1]}
        self._wait()
        for context in self.contexts:
            begin = time.perf_counter()
            found = step(self._ids[:, context - 1 : context], cache)
            self._wait()
            seconds[context] = time.perf_counter() - begin
            if context in kept:
                logits[context] = found.float().cpu()
        return seconds, logits

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def off(logits: Mapping[int, torch.Tensor], exact: Mapping[int, torch.Tensor]) -> float:
    """The largest difference over the largest logit, of all contexts that are compared."""
    return max(float((logits[n] - x).abs().max() / x.abs().max()) for n, x in exact.items())


def medians(passes: Sequence[Mapping[int, float]]) -> Json:
    """Microseconds a step: of all contexts, and of ranges of them."""
    us = {n: statistics.median(p[n] for p in passes) * 1e6 for n in passes[0]}
    found = {"all": statistics.median(us.values())}
    least, most = min(us), max(us)
    for end in (*(n for n in _RANGES if least <= n < most), most):
        part = [value for n, value in us.items() if least <= n <= end]
        found[f"{least} to {end}"] = statistics.median(part)
        least = end + 1
    return {name: round(value, 1) for name, value in found.items()}


def open_regions(others: Sequence[object]) -> list[Json]:
    """The regions of ours, but ``others``, whose sizes change: searches, and at how many sizes
    what serves.
    """
    from mirage_py.dynamo.serve.region_op import living_calls

    found = []
    for call in living_calls():
        if call.has_open_sizes and all(call is not other for other in others):
            kernels, operators = call.sizes_met
            table = call.dispatch_table().splitlines()
            row = {"searches": call.searches, "by_kernel": kernels, "by_operators": operators}
            found.append({**row, "table": table})
    return found


def measured(
    loop: Loop, steps: Mapping[str, Step], exact: Mapping[int, torch.Tensor], passes: int
) -> dict[str, Json]:
    """A row for each way to make a step: a first loop, which compiles, and others in turns."""
    from torch._dynamo.utils import counters

    rows: dict[str, Json] = {}
    for name, step in steps.items():
        before = counters["stats"].get("unique_graphs", 0)
        with log_lines() as log:  # which prints them
            seconds, logits = loop.run(step)
        rows[name] = {
            "error": float(f"{off(logits, exact):.3g}"),
            "us": None,
            "graphs": counters["stats"].get("unique_graphs", 0) - before,
            "first_loop_s": round(sum(seconds.values()), 1),
            # Of contexts that nobody has met.
            "first_us": round(statistics.median(seconds.values()) * 1e6, 1),
            "stalls": [n for n, s in seconds.items() if s > _STALL_S],
            **({"log": log} if name == OURS else {}),
        }
        click.echo(line_of(name, rows[name]))
    found: dict[str, list[dict[int, float]]] = {name: [] for name in steps}
    with turn() if passes else contextlib.nullcontext():
        for _ in range(passes):
            for name, step in steps.items():
                seconds, logits = loop.run(step)
                found[name].append(seconds)
                # Also after many calls.
                rows[name]["error"] = max(rows[name]["error"], float(f"{off(logits, exact):.3g}"))
    for name, passed in found.items():
        if passed:
            rows[name]["us"] = medians(passed)
            click.echo(line_of(name, rows[name]))
    return rows


@click.command()
@click.option("--model", type=click.Choice(list(WHOLE_MODELS)), default="llama1b")
@click.option("--layers", type=click.IntRange(min=1), default=2)
@click.option("--prompt", type=click.IntRange(min=1), default=1, help="Tokens before the loop.")
@click.option("--tokens", type=click.IntRange(min=3), default=303, help="Tokens at its end.")
@click.option("--budget", type=float, default=5.0, help="Seconds for each distinct region.")
@click.option("--passes", type=click.IntRange(min=1), default=5, help="Timed loops of each.")
@click.option("--trust", is_flag=True, help="Regions are used without a race of whole graphs.")
@click.option("--peers", default=",".join(_PEERS), help="Rivals besides eager, with commas.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a JSON file.")
@click.option("--smoke", is_flag=True, help="A tiny model on the CPU: nothing is measured.")
def main(
    model: str,
    layers: int,
    prompt: int,
    tokens: int,
    budget: float,
    passes: int,
    trust: bool,
    peers: str,
    output: Path | None,
    smoke: bool,
) -> None:
    """Measure a decode loop with a cache that grows."""
    from mirage_py.dynamo.backend import mirage_py
    from mirage_py.dynamo.serve.region_op import living_calls

    if not smoke and not torch.cuda.is_available():
        click.echo("no NVIDIA GPU here: nothing was measured (--smoke runs all but the clock)")
        return
    asked: Json = {"effort": "quick", "budget": budget}
    asked |= {"whole_graph": "trust"} if trust else {}
    if smoke:
        asked = {"on_cpu": "reference", "rest": "eager", "target": "h200"}
    rivals = [name for name in peers.split(",") if name and not smoke]
    others = list(living_calls())
    with torch.no_grad():
        device = "cpu" if smoke else "cuda"
        module, config = built(WHOLE_MODELS[model], layers, device, tiny=smoke)
        plain = step_function(module)
        loop = Loop(module, config, prompt, tokens)
        exactly = copy.deepcopy(module).float()
        exact = Loop(exactly, config, prompt, tokens).run(step_function(exactly))[1]
        del exactly
        ours = compiled(plain, dynamic=True, backend=mirage_py, options=asked)
        steps: dict[str, Step] = {OURS: ours, EAGER: plain}
        for name in rivals:
            steps[name] = compiled(plain, dynamic=True, **_PEERS[name])
        rows = measured(loop, steps, exact, 0 if smoke else passes)
    regions = open_regions(others)
    document = {
        "command": f"python -m benchmarks.whole_models.growing_context {' '.join(sys.argv[1:])}",
        "commit": commit(),
        "gpu": None if smoke else torch.cuda.get_device_name(),
        "what": f"{WHOLE_MODELS[model].words}, {layers} layers, batch 1, one token a step, "
        f"contexts {prompt + 1} to {tokens} in a DynamicCache; microseconds on the host",
        "rows": rows,
        "open_regions": regions,
    }
    click.echo("\n".join(lines_of(regions)))
    if output is not None:
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if any(r["searches"] > 1 or r["by_operators"] for r in regions):
        sys.exit(1)


def line_of(name: str, row: Json) -> str:
    """What was found of a way to make a step."""
    us = row["us"]
    times = "not timed" if us is None else ", ".join(f"{k}: {v:.0f} us" for k, v in us.items())
    first = f"first loop {row['first_loop_s']:.1f} s, {row['first_us']:.0f} us a step"
    more = f"off by {row['error']:.2g}; {row['graphs']} graphs, {first}"
    return f"{name:21s} {times}; {more}, contexts beyond {_STALL_S} s: {row['stalls']}"


def lines_of(regions: Sequence[Json]) -> list[str]:
    """What was found of regions with open sizes."""
    searches = max((r["searches"] for r in regions), default=0)
    operators = sum(r["by_operators"] for r in regions)
    by_kernel = max((r["by_kernel"] for r in regions), default=0)
    words = f"{len(regions)} regions with open sizes: at most {searches} searches each"
    lines = [line for region in regions for line in region["table"]]
    return [*lines, f"{words}, {by_kernel} sizes by a kernel, {operators} by torch's operators"]


if __name__ == "__main__":
    main()
