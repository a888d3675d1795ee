"""Causal attention of prompts with grouped heads: plans by hand against PyTorch's kernels.

    python -m benchmarks.ablation.prefill -o OUT.json    # needs a GPU; about a minute on an H200
    python -m benchmarks.ablation.prefill -o OUT.json --searched 20 --jobs 4 --cells 128x4096

With ``--searched`` a plan is searched for each cell, in so many seconds, in place of those. All of
a cell take turns in one run; each is compared with float32 on three heads.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mirage_py
from benchmarks.ablation.prefill_plans import CELLS, GROUPS, HEADS, Cell, variants
from benchmarks.peers.library_attention import prompt_peers
from benchmarks.report.provenance import commit
from mirage_py.runtime.compile.compile_pool import CompileOutcome, CompilePool
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.timing.timing import time_interleaved

Json = dict[str, Any]
_COMPARED_HEADS = (0, 13, 31)
_COMPARED_ROWS = 2048


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every cell, and write and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--cells", default="", help="head size x tokens (w window), with commas")
    parser.add_argument("--searched", type=float, help="seconds of a search for each cell")
    parser.add_argument("--jobs", type=int, default=1, help="searches at a time, timed in turns")
    asked = parser.parse_args(arguments)
    names = [name for name in asked.cells.split(",") if name]
    cells = [cell for cell in CELLS if not names or cell.name in names]
    found = searched(cells, asked.searched, asked.jobs) if asked.searched else written_down(cells)
    rows = []
    for row in found:
        rows.append(row)
        _print(row)
    document = {
        "command": f"python -m benchmarks.ablation.prefill {' '.join(arguments or sys.argv[1:])}",
        "gpu": torch.cuda.get_device_name(),
        "commit": commit(),
        "rows": rows,
    }
    asked.output.write_text(text_of(document), encoding="utf-8")
    return 0


def written_down(cells: Sequence[Cell]) -> Iterator[Json]:
    """The rows of cells with their variants."""
    known = [(cell, variant, variant.plan(cell)) for cell in cells for variant in variants(cell)]
    with CompilePool() as pool:
        outcomes = pool.compile([plan for *_, plan in known], 90)
    for cell in cells:
        calls: dict[str, PlanRunner] = {}
        facts: dict[str, Json] = {}
        for (place, variant, plan), outcome in zip(known, outcomes, strict=True):
            if place == cell and outcome.compiled:
                calls[variant.name] = PlanRunner(plan)
                facts[variant.name] = {
                    "rows": variant.rows, "keys": variant.keys, **_facts_of(outcome)
                }  # fmt: skip
        yield measured(cell, calls, facts)


def _facts_of(outcome: CompileOutcome) -> Json:
    (found,) = outcome.facts
    sizes = {"registers": found.registers, "spills": found.spills}
    return {**sizes, "smem_bytes": found.smem_bytes}


def searched(cells: Sequence[Cell], seconds: float, jobs: int) -> Iterator[Json]:
    """The rows of cells with what a search finds for each."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        yield from pool.map(found_and_measured, cells, [seconds] * len(cells))


def found_and_measured(cell: Cell, seconds: float) -> Json:
    """The row of a cell whose plan is searched in this process."""
    begin = time.monotonic()
    result = mirage_py.optimize(cell.program, effort="quick", budget=seconds)
    took = round(time.monotonic() - begin, 1)
    if result.plan is None:
        return {**measured(cell, {}, {}), "search_s": took, "served": str(result.served)}
    facts = {"searched": {"options": [str(o) for o in result.plan.options]}}
    row = measured(cell, {"searched": PlanRunner(result.plan)}, facts)
    return {**row, "search_s": took, "served": str(result.served)}


def text_of(document: Mapping[str, Any]) -> str:
    """The result file: a line for each plan and peer."""
    lines = json.dumps(document, indent=1).splitlines()
    found: list[str] = []
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if depth > 4 or (depth == 4 and line.strip().startswith("}")):
            found[-1] += (" " if depth > 5 else "") + line.strip()
        else:
            found.append(line)
    return "\n".join(found) + "\n"


def measured(cell: Cell, plans: Mapping[str, PlanRunner], facts: Mapping[str, Json]) -> Json:
    """The row of a cell: its plans and its peers, the fastest first."""
    inputs = [_inputs(cell, seed) for seed in range(2 if cell.tokens >= 4096 else 6)]
    peers = prompt_peers(cell.window)
    calls: dict[str, Callable[..., Tensor]] = {**peers, **plans}
    errors = {name: error(cell, call(*inputs[0]), *inputs[0]) for name, call in calls.items()}
    times = time_interleaved(
        {n: lambda i, call=call: call(*inputs[i]) for n, call in calls.items()},  # type: ignore[misc]
        len(inputs),
        reps=9,
    )
    lines = {
        name: {
            "name": name,
            **facts.get(name, {}),
            "us": round(time.median_us, 2),
            "tflops": round(cell.flops / time.median_us / 1e6, 1),
            "error": round(errors[name], 4),
        }
        for name, time in sorted(times.items(), key=lambda item: item[1].median_us)
        if time.ran
    }
    return {
        "width": cell.width,
        "tokens": cell.tokens,
        "window": cell.window,
        "plans": [line for name, line in lines.items() if name not in peers],
        "peers": [line for name, line in lines.items() if name in peers],
    }


def error(cell: Cell, got: Tensor, q: Tensor, k: Tensor, v: Tensor) -> float:
    """The largest difference from float32 over the size of what it is of, among three heads."""
    worst = 0.0
    tokens = cell.tokens
    for head in _COMPARED_HEADS:
        for first in {0, (tokens - _COMPARED_ROWS) // 2, tokens - _COMPARED_ROWS}:
            rows = slice(max(0, first), max(0, first) + _COMPARED_ROWS)
            own = torch.arange(tokens, device=q.device)[rows, None]
            seen = torch.arange(tokens, device=q.device)[None] <= own
            if cell.window is not None:
                seen &= torch.arange(tokens, device=q.device)[None] > own - cell.window
            group = head // (HEADS // GROUPS)
            scores = q[0, head, rows].float() @ k[0, group].float().T / math.sqrt(cell.width)
            want = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v[0, group].float()
            far = (got[0, head, rows].float() - want).abs() / (want.abs() + want.abs().mean())
            worst = max(worst, float(far.nan_to_num(math.inf).max()))
    return worst


def _inputs(cell: Cell, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)
    shapes = [(1, heads, cell.tokens, cell.width) for heads in (HEADS, GROUPS, GROUPS)]
    q, k, v = (torch.randn(s, generator=generator, device="cuda").bfloat16() for s in shapes)
    return q, k, v


def _print(row: Json) -> None:
    print(f"head size {row['width']}, {row['tokens']} tokens, window {row['window']}")
    for line in sorted((*row["plans"], *row["peers"]), key=lambda line: line["us"]):
        what = f"{line['us']:10.1f} us {line['tflops']:7.1f} TFLOP/s  error {line['error']:.4f}"
        print(f"  {line['name']:28}{what}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
