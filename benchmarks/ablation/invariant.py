"""The cost of batch invariance: kernels for any number of rows against unrestricted ones.

    python -m benchmarks.ablation.invariant [--budget SECONDS]    # needs a GPU; about four minutes
    python -m benchmarks.ablation.invariant --budget 7 --rows 1,16 --jobs 3      # about one

A free kernel is searched for each number of rows; ``eager_differs`` are the numbers at which the
function itself gives a row other bits than among all.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import mirage_py
from benchmarks.report.provenance import commit
from mirage_py.runtime.timing.timing import time_interleaved

_MOST = 2048
_SETS = 6


def norm(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    """A norm and a projection."""
    return F.rms_norm(x, (x.shape[-1],), g, 1e-6) @ w


def mlp(x: Tensor, u: Tensor, w: Tensor) -> Tensor:
    """The first half of a gated MLP."""
    return F.silu(x @ u) * (x @ w)


def decode(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A new token of each sequence."""
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


Shapes = list[tuple[int, ...]]
# Each function, shapes of its tensors that have rows, and of the others.
_PROGRAMS: dict[str, tuple[Callable[..., Tensor], Shapes, Shapes]] = {
    "norm": (norm, [(_MOST, 4096)], [(4096,), (4096, 6144)]),
    "mlp": (mlp, [(_MOST, 4096)], [(4096, 14336), (4096, 14336)]),
    "decode": (decode, [(_MOST, 32, 1, 128), (_MOST, 8, 512, 128), (_MOST, 8, 512, 128)], []),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line of JSON for each program; 1 where a row has other bits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of each search")
    parser.add_argument("--rows", default="1,4,16", help="numbers of rows that are timed")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time, timed in turns")
    parser.add_argument("--only", choices=_PROGRAMS, help="one program")
    parser.add_argument("-o", "--output", type=Path, help="write a JSON file")
    asked = parser.parse_args(arguments)
    counts = [int(count) for count in asked.rows.split(",")]
    rows: list[dict[str, Any]] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.jobs, mp_context=spawn) as pool:
        names = [asked.only] if asked.only else list(_PROGRAMS)
        begun = {pool.submit(priced, name, asked.budget, counts): name for name in names}
        for done in as_completed(begun):
            error = done.exception()
            fault = {"program": begun[done], "differs": None, "fault": repr(error)}
            rows.append(fault if error else done.result())
            print(json.dumps(rows[-1]), flush=True)
            if asked.output is not None:
                asked.output.write_text(_document(rows, arguments), encoding="utf-8")
    return 1 if any(row["differs"] != [] for row in rows) else 0


def _document(rows: Sequence[dict[str, Any]], arguments: Sequence[str] | None) -> str:
    command = f"python -m benchmarks.ablation.invariant {' '.join(arguments or sys.argv[1:])}"
    head = {"command": command, "commit": commit(), "gpu": torch.cuda.get_device_name()}
    return json.dumps({**head, "rows": list(rows)}, indent=1) + "\n"


def priced(program: str, budget: float, counts: Sequence[int]) -> dict[str, Any]:
    """Microseconds at some numbers of rows, and where bits differ."""
    function, *shapes = _PROGRAMS[program]
    of_rows, others = ([_numbers(s) for s in of] for of in shapes)
    names = function.__code__.co_varnames[: len(of_rows)]
    axes = {name: {0: "rows"} for name in names}
    alike = mirage_py.superoptimize(invariant=True, dynamic=axes, budget=budget)(function)
    everything, eager = alike(*of_rows, *others), function(*of_rows, *others)
    found: dict[str, Any] = {"program": program, "differs": [], "eager_differs": []}
    found["error"] = float((everything - eager).abs().max() / eager.abs().max())
    for count in (*range(1, 130), *range(130, _MOST, 13), _MOST):
        some = [x[:count] for x in of_rows]
        if not torch.equal(alike(*some, *others), everything[:count]):
            found["differs"].append(count)
        if not torch.equal(function(*some, *others), eager[:count]):
            found["eager_differs"].append(count)
    found["served"] = alike.dispatch_table().splitlines()
    for rows in counts:
        free = mirage_py.superoptimize(budget=budget)(function)
        sets = [[x[n * rows : (n + 1) * rows] for x in of_rows] for n in range(_SETS)]
        weights = [[w.clone() for w in others] for _ in range(_SETS)]
        calls = {"alike": alike, "free": free, "eager": function}
        for call in calls.values():
            for some, held in zip(sets, weights, strict=True):
                call(*some, *held)
        times = time_interleaved(
            {n: _entry(call, sets, weights) for n, call in calls.items()}, _SETS, reps=21
        )
        found[f"served_at_{rows}"] = free.dispatch_table().splitlines()
        found[f"us_at_{rows}"] = {name: round(t.median_us, 2) for name, t in times.items()}
    return found


def _entry(
    call: Callable[..., Any], sets: Sequence[Sequence[Tensor]], weights: Sequence[Sequence[Tensor]]
) -> Callable[[int], Any]:
    return lambda number: call(*sets[number], *weights[number])


def _numbers(shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(len(shape))
    drawn = torch.randn(*shape, generator=generator, device="cuda").bfloat16()
    return drawn / 64 if len(shape) == 2 and shape[0] == 4096 else drawn


if __name__ == "__main__":
    raise SystemExit(main())
