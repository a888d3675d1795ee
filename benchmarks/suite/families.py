"""The split of a run: search where egglog is, measurement where the GPU is.

``python -m benchmarks.suite.families DIR [KEY ...] [--suite NAME]`` writes one JSON file a
workload: the program as given and the ranked plans of verified families, each with its predicted
time. Reading them needs neither egglog nor lark.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.workloads.suites import ALL, named
from benchmarks.workloads.workload import Workload
from mirage_py.errors import InputError
from mirage_py.search.rank.instance import PlanEstimate
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import from_json, to_json

# Predicted to take this many times as long as the best: too long for a turn.
_NEAR = 1.6


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with what the cost model says of it: of the whole and, if kept, of each kernel."""

    plan: Plan
    predicted_us: float
    kernels: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Searched:
    """A workload's program and candidates, best first, and what finding them took."""

    program: Program
    candidates: tuple[Candidate, ...]
    search_s: float
    verify_s: float

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Those of the candidates."""
        return tuple(c.plan for c in self.candidates)

    @property
    def predicted_us(self) -> tuple[float, ...]:
        """What the cost model says of each plan."""
        return tuple(c.predicted_us for c in self.candidates)


def search_workload(
    workload: Workload, target: Target, effort: str = "quick", backend: str = "triton"
) -> Searched:
    """Search, rank and verify one workload on this machine."""
    from mirage_py.frontend.spec import parse_file
    from mirage_py.pipeline.pipeline import Request, rank_plans

    program = parse_file(workload.spec, sizes=workload.sizes)
    started = time.perf_counter()
    ranking = rank_plans(program, target, Request(target.name, backend, effort))
    total_s = time.perf_counter() - started
    return Searched(
        program,
        tuple(
            Candidate(i.plan, i.estimate.time_us, _kernels(i.estimate)) for i in ranking.instances
        ),
        ranking.found.seconds,
        total_s - ranking.found.seconds,
    )


def _kernels(estimate: PlanEstimate) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "time_us": round(k.time_us, 3),
            "bound": k.bound,
            "blocks": k.blocks,
            "blocks_per_sm": k.blocks_per_sm,
        }
        for k in estimate.kernels
    )


def write(searched: Searched, path: Path) -> None:
    """One JSON file."""
    found = searched.candidates
    document = {
        "program": to_json(searched.program),
        "plans": [to_json(c.plan) for c in found],
        "predicted_us": [round(c.predicted_us, 3) for c in found],
        "kernels": [list(c.kernels) for c in found],
        "search_s": round(searched.search_s, 3),
        "verify_s": round(searched.verify_s, 3),
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def read(path: Path, limit: int | None = None, backend: str = "auto") -> Searched:
    """The file's content, with ``limit`` plans of a back end, or of any: the best ones, and some of
    each kind.

    Raises FormatError where it is not one of ours, FileNotFoundError where there is none.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    program = from_json(document["program"])
    if not isinstance(program, Program):
        raise TypeError(f"{path} holds something else")
    # Files of earlier searches hold no predictions for single kernels.
    kernels = document.get("kernels") or [[]] * len(document["plans"])
    rows = [
        row
        for row in zip(document["plans"], document["predicted_us"], kernels, strict=True)
        if backend in ("auto", row[0].get("backend", "triton"))
    ]
    candidates = [
        Candidate(plan, predicted_us, tuple(of_each))
        for held, predicted_us, of_each in (rows if limit != 0 else ())
        if isinstance(plan := from_json(held), Plan)
    ]
    kept = candidates if limit is None else some_of_each(candidates, limit)
    return Searched(program, tuple(kept), document["search_s"], document["verify_s"])


def some_of_each(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """At most ``limit`` of them in their order: half by their prediction, the others by turns among
    back ends, kinds and numbers of kernels and parts. Between those the model errs by more than the
    plans differ; what it ranks low comes last.
    """
    ranks = range(len(candidates))
    groups: dict[tuple[str, str], list[int]] = {}
    for n in ranks[limit // 2 :]:
        plan = candidates[n].plan
        if candidates[n].predicted_us <= _NEAR * candidates[0].predicted_us:
            groups.setdefault((plan.backend, describe(plan.ugraph)), []).append(n)
    turns = (n for turn in zip_longest(*groups.values()) for n in turn if n is not None)
    chosen = dict.fromkeys((*ranks[: limit // 2], *turns, *ranks))
    return [candidates[n] for n in sorted(list(chosen)[:limit])]


def main(arguments: Sequence[str]) -> None:
    """Search a suite, or the workloads with these keys."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="such as rmsnorm-b8")
    parser.add_argument("--suite", default=ALL, help=f"which workloads (default: {ALL})")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--effort", choices=("quick", "full"), default="quick")
    parser.add_argument("--backend", choices=("triton", "cuda", "auto"), default="triton")
    chosen = parser.parse_args(arguments)
    try:
        workloads, target = named(chosen.suite, chosen.keys), target_named(chosen.target)
    except InputError as error:
        parser.error(str(error))
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for workload in workloads:
        searched = search_workload(workload, target, chosen.effort, chosen.backend)
        write(searched, chosen.folder / f"{workload.key}.json")
        print(
            f"{workload.key:24s} {len(searched.candidates):3d} plans, search "
            f"{searched.search_s:.2f} s, ranking and verification {searched.verify_s:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
