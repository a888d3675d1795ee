"""The sizes for which winners are proved: of the suite on an H200, and of the examples.

``python -m benchmarks.checks.proofs RESULTS [--suite FILE] [KEY ...]`` searches each workload of a
suite's results file again, takes the plan whose kernels, loops, parts and tiles are the winner's,
proves it of the program as it was given and replays the certificate. The examples stand for
themselves: the plan that the model ranks first at their own sizes. It writes a JSON file and prints
a table.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report.provenance import commit
from benchmarks.suite.families import read, search_workload
from benchmarks.suite.plan_format import described
from benchmarks.workloads.suites import named
from benchmarks.workloads.workload import Workload
from mirage_py.axioms.certificate.checker import fault_of
from mirage_py.axioms.proof.prove import prove
from mirage_py.formatting.derivation_format import starting_points
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph
from mirage_py.ugraph.text.json_form import to_json

Json = dict[str, Any]
# A bar would end a column.
_SIZE = re.compile(r"\|(\w+)\|")
SUITE = Path(__file__).parents[1] / "results" / "h200-suite.json"
# In the order of the README's table.
NAMES = (
    *("rmsnorm_matmul", "gated_mlp", "lora", "attention"),
    *("qknorm_attention", "ntrans", "softmax", "layernorm_linear"),
)


def proof_row(program: Program, ugraph: UGraph) -> Json:
    """What is proved of a µGraph, and by how much; the certificate is replayed as stored data."""
    for start, first in starting_points(program, ugraph):
        began = time.perf_counter()
        proof = prove(first, ugraph)
        found_s = time.perf_counter() - began
        if proof is None:
            continue
        stored = json.loads(json.dumps(proof.document()))
        began = time.perf_counter()
        fault = fault_of(to_json(first), to_json(ugraph), stored)
        return {
            "proved": not fault,
            "start": start,
            "needs": list(proof.needs),
            "steps": proof.length,
            "laws": len(proof.laws),
            "find_s": round(found_s, 3),
            "check_s": round(time.perf_counter() - began, 3),
        }
    return {"proved": False}


def winners(
    path: Path, keys: Sequence[str], target: Target, folder: Path | None
) -> Iterator[tuple[str, Json]]:
    """The rows of a suite's results, each with what is proved of its winner."""
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        key = f"{row['workload']}-b{row['batch']}"
        if keys and key not in keys:
            continue
        (workload,) = named("all", [key])
        if folder is not None:
            searched = read(folder / f"{key}.json")
        else:
            searched = search_workload(workload, target, backend="auto")
        plan = _with_tiles(searched.plans, row["plan"])
        if plan is None:
            yield key, {"proved": False, "found": False, "kind": row["kind"]}
        else:
            found = proof_row(searched.program, plan.ugraph)
            yield key, {"kind": describe(plan.ugraph), "found": True, **found}


def examples(
    keys: Sequence[str], target: Target, folder: Path | None
) -> Iterator[tuple[str, Json]]:
    """The examples at their own sizes."""
    for name in NAMES:
        if not keys or name in keys:
            if folder is not None:
                searched = read(folder / f"{name}.json")
            else:
                searched = search_workload(Workload(name, name, 1, {}), target)
            best = searched.plans[0].ugraph
            yield name, {"kind": describe(best), **proof_row(searched.program, best)}


def _with_tiles(plans: Sequence[Plan], wanted: Sequence[Json]) -> Plan | None:
    """The plan with a winner's kernels and parts, cut into the winner's tiles: a tuner had climbed
    to many of these from a ranked plan.
    """
    for plan in plans:
        if [_structure(k) for k in described(plan)] == [_structure(k) for k in wanted]:
            pairs = zip(plan.ugraph.kernels, wanted, strict=True)
            kernels = tuple(_cut(kernel, own) for kernel, own in pairs)
            return replace(plan, ugraph=replace(plan.ugraph, kernels=kernels))
    return None


def _structure(kernel: Json) -> Json:
    loops = [loop for loop, _ in kernel.get("loops", [])]
    grid = sorted(kernel.get("grid", {}))
    return {"name": kernel["name"], "grid": grid, "loops": loops, "parts": kernel.get("parts")}


def _cut(kernel: Kernel, wanted: Json) -> Kernel:
    if not isinstance(kernel, BlockGraph):
        return kernel
    tiles = iter([tile for _, tile in wanted["loops"]])
    sections = tuple(s if s.loop is None else replace(s, tile=next(tiles)) for s in kernel.sections)
    grid = tuple(replace(a, tile=wanted["grid"][a.dim]) for a in kernel.grid)
    return replace(kernel, sections=sections, grid=grid)


def table(document: Json) -> str:
    """Markdown, as it stands in docs/explanation/proofs.md."""
    lines = ["| winner | kind | proved for all sizes and tiles | where | steps |"]
    lines.append("|---|---|---|---|---:|")
    for key, row in document["rows"].items():
        proved = "yes" if row["proved"] else "no" if row.get("found", True) else "not found"
        needs = _SIZE.sub(r"size \1", "; ".join(row.get("needs", []))) or "-"
        lines.append(f"| {key} | {row['kind']} | {proved} | {needs} | {row.get('steps', '')} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Prove what has won."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="such as rmsnorm-b8, or softmax")
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--target", default="h200")
    parser.add_argument(
        "--families",
        type=Path,
        help="what benchmarks.suite.families wrote, with --backend auto; and of the examples",
    )
    parser.add_argument("--searched-at", default="", help="the commit that these were made by")
    chosen = parser.parse_args(arguments)
    target = target_named(chosen.target)
    read_plans = {"plans_searched_at": chosen.searched_at} if chosen.families else {}
    rows: dict[str, Json] = {}
    for found in (
        examples(chosen.keys, target, chosen.families),
        winners(chosen.suite, chosen.keys, target, chosen.families),
    ):
        for key, row in found:
            rows[key] = row
            print(key, json.dumps(row), flush=True)
            document = {
                "schema": 1,
                "command": "python -m benchmarks.checks.proofs",
                "commit": commit(),
                **read_plans,
                "rows": rows,
            }
            chosen.results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(table({"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
