"""Two tunings of the same plans on a GPU: how often the winner of one is slower in the other.

python -m benchmarks.search.winner_flips -o OUT.json [--plans N] [--seconds S] [--only NAMES]

Each tuning checks and times every plan as any does; the second finds the kernels compiled. A flip
is a winner of one tuning that takes more than 1 % or 5 % longer in the other than the winner there.
What fails in one of them is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from benchmarks.report.provenance import commit
from benchmarks.search.first_calls import call_of
from benchmarks.workloads.workloads import cells, suites
from mirage_py.frontend.spec import parse_file
from mirage_py.pipeline.pipeline import Request, rank_plans, resolve_target
from mirage_py.runtime.compile.compile_pool import keep_compile_workers
from mirage_py.runtime.eager.compiled import EAGER
from mirage_py.runtime.numerical_check.check_pool import keep_check_workers
from mirage_py.runtime.tune.tuner import tune
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program

Json = dict[str, Any]

LIMITS = (0.01, 0.05)
# Of a ranking: what a budget of a few seconds has time for.
_RANKING_S = 9.0


def ranked(name: str, count: int) -> tuple[Program, list[Plan]]:
    """A program and the plans that lead its ranking."""
    workload = cells()[name]
    program = parse_file(workload.spec, sizes=workload.sizes)
    target, _ = resolve_target("auto")
    found = rank_plans(program, target, Request(effort="quick", budget=_RANKING_S))
    return program, [i.plan for i in found.instances[:count]]


def times_of(program: Program, plans: Sequence[Plan], function: Any) -> dict[int, float]:
    """Microseconds of those that passed, by their place among the plans."""
    target, _ = resolve_target("auto")
    report = tune(program, plans, {EAGER: function}, target=target, climbing_rounds=0)
    numbers = {plan: number for number, plan in enumerate(plans)}
    return {
        numbers[m.plan]: m.time_us
        for m in report.measured
        if m.plan is not None and m.passed and isfinite(m.time_us)
    }


def lost(one: dict[int, float], other: dict[int, float]) -> float:
    """How much longer the winner of one tuning takes in the other than the winner there."""
    shared = [n for n in one if n in other]
    if not shared:
        return 0.0
    winner = min(shared, key=lambda n: one[n])
    return other[winner] / min(other[n] for n in shared) - 1.0


def row_of(name: str, count: int) -> Json:
    """Both tunings of one program."""
    program, plans = ranked(name, count)
    function, _ = call_of(name)
    begun = time.perf_counter()
    one = times_of(program, plans, function)
    between = time.perf_counter()
    other = times_of(program, plans, function)
    return {
        "plans": len(plans),
        "timed": [len(one), len(other)],
        "best_us": [round(min(t.values(), default=0.0), 3) for t in (one, other)],
        "lost": [round(lost(one, other), 4), round(lost(other, one), 4)],
        "seconds": [round(between - begun, 1), round(time.perf_counter() - between, 1)],
        "times_us": [{str(n): round(x, 3) for n, x in t.items()} for t in (one, other)],
    }


def flips(rows: Sequence[Json]) -> Json:
    """The share of winners beyond each limit."""
    losses = [x for row in rows for x in row.get("lost", ())]
    shares = {f"{limit:.0%}": sum(x > limit for x in losses) for limit in LIMITS}
    return {"winners": len(losses), "flips": shares}


def main(arguments: Sequence[str]) -> None:
    """Measure, and write after each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="result file")
    parser.add_argument("--plans", type=int, default=32, help="plans of each program")
    parser.add_argument("--seconds", type=float, default=110.0, help="begin none after this")
    parser.add_argument("--only", default="", help="names or their beginnings, by comma")
    chosen = parser.parse_args(arguments)
    asked = tuple(name for name in chosen.only.split(",") if name)
    document: Json = {
        "commit": commit(),
        "gpu": torch.cuda.get_device_name(),
        "command": f"python -m benchmarks.search.winner_flips {' '.join(arguments)}",
        "rows": {},
    }
    begun = time.monotonic()
    keep_compile_workers()
    keep_check_workers()
    for workload in suites()["paper"]:
        name = workload.key
        if (asked and not name.startswith(asked)) or time.monotonic() - begun > chosen.seconds:
            continue
        row = document["rows"][name] = row_of(name, chosen.plans)
        document.update(flips([*document["rows"].values()]))
        shown = {k: v for k, v in row.items() if k != "times_us"}
        print(f"{name:16s} {shown}", flush=True)
        chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print({k: document[k] for k in ("winners", "flips") if k in document})


if __name__ == "__main__":
    main(sys.argv[1:])
