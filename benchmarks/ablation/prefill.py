"""Causal attention of prompts with grouped heads: plans written down, beside torch's own kernels.

    python -m benchmarks.ablation.prefill -o OUT.json    # needs a GPU; about a minute on an H200

All of a cell take turns in one run; each is compared with float32 on three heads.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.ablation.prefill_plans import CELLS, GROUPS, HEADS, Cell, Variant, variants
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
    output = parser.parse_args(arguments).output
    known = [(cell, variant, variant.plan(cell)) for cell in CELLS for variant in variants(cell)]
    with CompilePool() as pool:
        outcomes = pool.compile([plan for *_, plan in known], 90)
    rows = []
    for cell in CELLS:
        of_cell = [
            (variant, PlanRunner(plan), outcome)
            for (place, variant, plan), outcome in zip(known, outcomes, strict=True)
            if place == cell and outcome.compiled
        ]
        rows.append(measured(cell, of_cell))
        _print(rows[-1])
    document = {
        "command": f"python -m benchmarks.ablation.prefill -o {output}",
        "gpu": torch.cuda.get_device_name(),
        "commit": commit(),
        "rows": rows,
    }
    output.write_text(text_of(document), encoding="utf-8")
    return 0


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


def measured(cell: Cell, plans: Sequence[tuple[Variant, PlanRunner, CompileOutcome]]) -> Json:
    """The row of a cell: its plans and its peers, the fastest first."""
    inputs = [_inputs(cell, seed) for seed in range(2 if cell.tokens >= 4096 else 6)]
    calls: dict[str, Callable[..., Tensor]] = dict(prompt_peers(cell.window))
    peers = list(calls)
    facts: dict[str, Json] = {}
    for variant, runner, outcome in plans:
        (found,) = outcome.facts
        calls[variant.name] = runner
        facts[variant.name] = {
            "rows": variant.rows,
            "keys": variant.keys,
            "registers": found.registers,
            "spills": found.spills,
            "smem_bytes": found.smem_bytes,
        }
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
