"""Ranks of the suite's winners in the order in which effort quick compiles, without a GPU.

python -m benchmarks.search.first_plans -o OUT.json [--only NAMES] [--plans N]

Each cell of the paper's programs is searched and ranked under the time budget of effort quick, by a
clock that is this process's CPU time, as of a call that was traced before. Of the first plans, the
fastest by the committed measurements of plans with the same tiles, warps and stages is held against
the suite's result: hill climbing adds launch options to it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.calibration.calibrate import MEASUREMENTS, Measured, read
from benchmarks.report.provenance import commit
from benchmarks.search.first_calls import suite_us
from benchmarks.suite.plan_format import described
from benchmarks.workloads.workloads import cells, suites
from mirage_py.frontend.spec import parse_file
from mirage_py.pipeline.pipeline import Request, rank_plans
from mirage_py.pipeline.selection.selection import Ranking, in_order_of_trial
from mirage_py.pipeline.selection.time_budget import USUAL_S
from mirage_py.search.rank.instance import Instance
from mirage_py.targets import target
from mirage_py.ugraph.ir.plan import Plan

Json = dict[str, Any]
_TARGET = "h200"
# What tracing takes of the budget, with bytecode of what it imports.
_TRACED_S = 1.0
# What a plan is told from others by; its flags are launch options.
_SHAPE = ("grid", "parts", "loops", "num_warps", "num_stages", "library")


def shape_of(plan: Plan) -> str:
    """Tiles, splits, warps and stages of each kernel."""
    shapes = [{k: v for k, v in one.items() if k in _SHAPE} for one in described(plan)]
    return json.dumps(shapes, sort_keys=True)  # whatever the order of axes


def first_plans(name: str, budget: float | None = USUAL_S["quick"]) -> list[Plan]:
    """The plans of a cell in the order in which they would be compiled."""
    found, request = _ranking(name, budget)
    return [i.plan for i in in_order_of_trial(found.instances, found.target, request)]


def ranked_plans(name: str, budget: float | None) -> tuple[Instance, ...]:
    """The plans of a workload in the roofline's order."""
    return _ranking(name, budget)[0].instances


def _ranking(name: str, budget: float | None) -> tuple[Ranking, Request]:
    workload = cells()[name]
    program = parse_file(workload.spec, sizes=workload.sizes)
    importlib.import_module("torch")  # a function that was traced has it
    # Other work on the machine takes no time of the budget.
    with patch.object(time, "monotonic", time.process_time):
        begun = time.monotonic() - _TRACED_S
        request = Request(target=_TARGET, effort="quick", budget=budget, begun=begun)
        return rank_plans(program, target(_TARGET), request), request


def row_of(name: str, measured: Sequence[Measured], most: int) -> Json:
    """The place and the time of the best of the first plans, beside the suite's result."""
    known: dict[str, float] = {}
    for one in measured:
        shape = shape_of(one.plan)
        known[shape] = min(known.get(shape, one.us), one.us)
    begun = time.process_time()
    plans = first_plans(name)
    spent = time.process_time() - begun
    timed = [(known[s], n) for n, p in enumerate(plans[:most]) if (s := shape_of(p)) in known]
    best = suite_us()[name]
    row: Json = {"cpu_s": round(spent, 1), "plans": len(plans), "suite_us": best}
    if timed:
        us, place = min(timed)
        row |= {"measured": len(timed), "place": place, "us": us, "slower": round(us / best - 1, 3)}
    return row


def main() -> None:
    """Write after each cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="result file")
    parser.add_argument("--only", default="", help="names or their beginnings, by comma")
    parser.add_argument("--plans", type=int, default=24, help="how many of the first plans")
    chosen = parser.parse_args()
    asked = tuple(name for name in chosen.only.split(",") if name)
    names = [w.key for w in suites()["paper"] if not asked or w.key.startswith(asked)]
    document: Json = {"commit": commit(), "plans": chosen.plans, "rows": {}}
    for name in names:
        row = row_of(name, read(MEASUREMENTS, [name]), chosen.plans)
        document["rows"][name] = row
        print(f"{name:16s} {row}", flush=True)
        chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
