"""Searching the workloads where egglog is, measuring them where the GPU is.

``python -m benchmarks.families DIR [KEY ...]`` writes one JSON file a workload: the program as
given and the ranked plans of verified families, each with its predicted time. Reading them needs
neither egglog nor lark.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workloads import Workload, extra, suite
from mirage_py.targets import target as target_named
from mirage_py.ugraph.json_form import from_json, to_json
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.program import Program

_TARGET = "h200"


@dataclass(frozen=True, slots=True)
class Searched:
    """A workload's program and plans, best first, and what finding them took.

    ``predicted_us`` and ``names`` have an entry for each plan.
    """

    program: Program
    plans: tuple[Plan, ...]
    predicted_us: tuple[float, ...]
    names: tuple[str, ...]
    search_s: float
    verify_s: float


def search_workload(workload: Workload) -> Searched:
    """Search, rank and verify one workload on this machine."""
    from mirage_py.frontend.spec import parse_file
    from mirage_py.pipeline import rank_plans

    program = parse_file(workload.spec, sizes=workload.sizes)
    started = time.perf_counter()
    ranking = rank_plans(program, target_named(_TARGET))
    usable = [i for i in ranking.instances if i.family.digest in ranking.verified]
    total_s = time.perf_counter() - started
    return Searched(
        program,
        tuple(i.plan for i in usable),
        tuple(i.estimate.time_us for i in usable),
        tuple(", ".join(k.name for k in i.plan.ugraph.kernels) for i in usable),
        ranking.found.seconds,
        total_s - ranking.found.seconds,
    )


def write(searched: Searched, path: Path) -> None:
    """One JSON file."""
    document = {
        "program": to_json(searched.program),
        "plans": [to_json(plan) for plan in searched.plans],
        "predicted_us": [round(t, 3) for t in searched.predicted_us],
        "names": list(searched.names),
        "search_s": round(searched.search_s, 3),
        "verify_s": round(searched.verify_s, 3),
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def read(path: Path) -> Searched:
    """The file's content; raises FormatError where it is not one of ours."""
    document = json.loads(path.read_text(encoding="utf-8"))
    program = from_json(document["program"])
    plans = tuple(from_json(p) for p in document["plans"])
    if not isinstance(program, Program) or not all(isinstance(p, Plan) for p in plans):
        raise TypeError(f"{path} holds something else")
    return Searched(
        program,
        tuple(p for p in plans if isinstance(p, Plan)),
        tuple(document["predicted_us"]),
        tuple(document["names"]),
        document["search_s"],
        document["verify_s"],
    )


def main(folder: Path, keys: list[str]) -> None:
    """Search the suite, or the workloads with these keys."""
    folder.mkdir(parents=True, exist_ok=True)
    for workload in (*suite(), *extra()):
        if keys and workload.key not in keys:
            continue
        searched = search_workload(workload)
        write(searched, folder / f"{workload.key}.json")
        print(
            f"{workload.key:20s} {len(searched.plans):3d} plans, search "
            f"{searched.search_s:.2f} s, ranking and verification {searched.verify_s:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
