"""The winners of a run compiled ahead of time for GPUs that are not present: registers, shared
memory.

python -m benchmarks.report.ahead RESULTS -o OUT.json [--targets a100,h100] [--backend cuda]

``RESULTS`` is the folder of a run: its result file and its measurements. For each row and target
the fastest measured plan, of all or of one back end, that compiles for the target and fits it:
registers, spilled values and shared memory of each kernel, and which faster ones did not fit.
Copies by descriptors and early starts are left out where a GPU has neither, and CUDA plans are
emitted for the target's own instructions. Nothing here is a time on such a GPU; for those, run the
suite there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report.record import MEASUREMENTS, read_document
from benchmarks.report.summary import key_of
from mirage_py.codegen.tiling.dependent_launch import DEPENDENT_LAUNCH
from mirage_py.codegen.tiling.descriptors import COPY_ENGINE
from mirage_py.errors import InputError
from mirage_py.runtime.base.emission import BACKENDS
from mirage_py.runtime.compile.ahead_of_time import memory_fault
from mirage_py.runtime.compile.compile_pool import CompileOutcome, CompilePool
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import from_json

Json = dict[str, Any]

# The GPU that a plan's text may be for, and no other.
_ARCH_OF_ITS_OWN = 90
# So many of a row's fastest plans are tried for a target before it is said that none fits.
_TRIED = 24


def fastest_plans(
    folder: Path, keys: Iterable[str], backend: str = "auto"
) -> dict[str, list[Json]]:
    """For each row the measured plans of a back end, or of any, fastest first, as lines of the
    measurements.
    """
    found: dict[str, list[Json]] = {key: [] for key in keys}
    path = folder / MEASUREMENTS
    if not path.exists():
        raise InputError(f"{path} is missing", repair="name the folder that a run has written")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["key"] not in found or line["us"] is None or not line["passed"]:
                continue
            if backend in ("auto", line["plan"].get("backend", "triton")):
                found[line["key"]].append(line)
    for lines in found.values():
        lines.sort(key=lambda line: line["us"])
        del lines[_TRIED:]
    return found


def with_winners_first(lines: Sequence[Json], digest: str | None) -> list[Json]:
    """The winner of the row before what was as fast in a shorter timing."""
    return sorted(lines, key=lambda line: (line["digest"] != digest, line["us"]))


def report(
    rows: Sequence[Mapping[str, Any]],
    plans: Mapping[str, Sequence[Json]],
    targets: Sequence[Target],
    pool: CompilePool,
) -> list[Json]:
    """A line for each row and target."""
    found: list[Json] = []
    for target in targets:
        waiting = {
            key_of(row): with_winners_first(plans[key_of(row)], row.get("digest"))
            for row in rows
            if plans[key_of(row)]
        }
        refused: dict[str, list[Json]] = {key: [] for key in waiting}
        while waiting:
            tried = {key: lines[0] for key, lines in waiting.items()}
            plans_here = [_plan(line, target) for line in tried.values()]
            outcomes = pool.compile(plans_here, target.capability)
            for (key, line), outcome in zip(tried.items(), outcomes, strict=True):
                reason = fault(outcome, target)
                if reason:
                    refused[key].append({"digest": line["digest"], "reason": reason})
                left = waiting.pop(key)[1:]
                if reason and left:
                    waiting[key] = left
                    continue
                found.append(_line(key, target, line, reason, outcome))
                found[-1]["refused"] = refused[key]
    return found


def fault(outcome: CompileOutcome, target: Target) -> str:
    """Why a plan does not run on a target; empty if nothing is known against it."""
    if not outcome.compiled:
        return str(outcome.reason).strip().splitlines()[0][:200]
    return next((str(f) for facts in outcome.facts if (f := memory_fault(facts, target))), "")


def _line(key: str, target: Target, line: Json, reason: str, outcome: CompileOutcome) -> Json:
    return {
        "key": key,
        "target": target.name,
        "kind": line["kind"],
        "digest": line["digest"],
        "fits": not reason,
        "kernels": [
            {
                "name": f.name,
                "registers": f.registers,
                "spills": f.spills,
                "smem_bytes": f.smem_bytes,
                "cubin_bytes": f.cubin_bytes,
            }
            for f in outcome.facts
        ],
    }


def for_target(plan: Plan, target: Target) -> Plan:
    """The plan without launch options that the target has no instructions for."""
    changes: dict[str, object] = {}
    if target.capability < COPY_ENGINE:
        changes |= {"descriptors": False, "producer_warps": False}
    if target.capability < DEPENDENT_LAUNCH:
        changes["early_start"] = False
    if target.capability != _ARCH_OF_ITS_OWN:
        changes["arch"] = None
    options = tuple(replace(o, **changes) for o in plan.options)
    return replace(plan, options=options)


def _plan(line: Json, target: Target) -> Plan:
    plan = from_json(line["plan"])
    if not isinstance(plan, Plan):
        raise InputError("the measurements hold something else than plans", where=line["key"])
    return for_target(plan, target)


def table(lines: Sequence[Json]) -> str:
    """Markdown: a row for each workload, three columns for each target."""
    targets = list(dict.fromkeys(line["target"] for line in lines))
    head = ["workload", *(f"{t}: {what}" for t in targets for what in _COLUMNS)]
    rows = [head, ["---"] + ["---:"] * (len(head) - 1)]
    by_key: dict[str, dict[str, Json]] = {}
    for line in lines:
        by_key.setdefault(line["key"], {})[line["target"]] = line
    for key, found in by_key.items():
        rows.append([key, *(cell for t in targets for cell in _cells(found.get(t)))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_COLUMNS = ("registers", "spills", "shared memory, KB", "plan")


def _cells(line: Json | None) -> list[str]:
    if line is None or not line["fits"]:
        return ["none fits", "", "", ""]
    kernels = line["kernels"]
    which = "the winner" if not line["refused"] else f"after {len(line['refused'])} others"
    return [
        ", ".join(str(k["registers"]) for k in kernels),
        ", ".join(str(k["spills"]) for k in kernels),
        ", ".join(f"{k['smem_bytes'] / 1024:.0f}" for k in kernels),
        which,
    ]


def main() -> int:
    """Compile the winners of a run for other targets; 1 where none of a row's plans fits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--targets", default="a100,h100")
    parser.add_argument("--backend", choices=("auto", *BACKENDS), default="auto")
    parser.add_argument("--workers", type=int)
    chosen = parser.parse_args()
    document = read_document(chosen.results)
    keys = [key_of(row) for row in document["rows"]]
    plans = fastest_plans(chosen.results, keys, chosen.backend)
    targets = [target_named(name) for name in chosen.targets.split(",")]
    with CompilePool(chosen.workers) as pool:
        lines = report(document["rows"], plans, targets, pool)
    text = json.dumps(
        {
            "schema": 1,
            "command": "python -m benchmarks.report.ahead " + " ".join(sys.argv[1:]),
            "commit": document["commit"],
            "measured_on": document["machine"].get("gpu"),
            "lines": lines,
        },
        indent=1,
    )
    chosen.out.write_text(text + "\n", encoding="utf-8")
    print(table(lines))
    return int(not all(line["fits"] for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
