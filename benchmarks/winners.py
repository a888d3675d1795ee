"""The winners of a result file, compiled ahead of time for GPUs that are not here.

python -m benchmarks.winners RESULT [--targets a100,h100,h200] [-o OUT.json]

Registers of a thread, spilled values and shared memory of every kernel, or why it does not compile
or fit: plans were chosen for the GPU of the result file, and another may have less shared memory.
Needs neither a GPU nor egglog.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import MEASUREMENTS, read_document
from benchmarks.run_suite import commit
from benchmarks.summary import key_of
from mirage_py.errors import InputError
from mirage_py.runtime.ahead_of_time import memory_fault
from mirage_py.runtime.compile_pool import CompileOutcome, CompilePool
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.json_form import from_json
from mirage_py.ugraph.plan import Plan

TARGETS = "a100,h100,h200"


def winners(document: Mapping[str, Any], measurements: Path) -> dict[str, Plan]:
    """The fastest plan of each row that has one, by the row's key.

    Raises InputError where the measurements do not hold one of them.
    """
    wanted = {(key_of(r), r["digest"]) for r in document["rows"] if r.get("digest")}
    found: dict[str, Plan] = {}
    with gzip.open(measurements, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            if (line["key"], line["digest"]) in wanted:
                plan = from_json(line["plan"])
                assert isinstance(plan, Plan)
                found[line["key"]] = plan
    if missing := [key for key, _ in sorted(wanted) if key not in found]:
        raise InputError(
            f"{measurements} has no plan for {', '.join(missing)}",
            repair="name the measurements of the same run with --measurements",
        )
    return found


def compiled(
    plans: Mapping[str, Plan], targets: Sequence[Target], pool: CompilePool
) -> Iterator[dict[str, Any]]:
    """A row for each plan: per target its kernels in numbers, and what is wrong, if anything."""
    outcomes = {t.name: pool.compile(list(plans.values()), t.capability) for t in targets}
    for number, key in enumerate(plans):
        yield {
            "key": key,
            "targets": {t.name: _numbers(outcomes[t.name][number], t) for t in targets},
        }


def _numbers(outcome: CompileOutcome, target: Target) -> dict[str, Any]:
    faults = [fault for f in outcome.facts if (fault := memory_fault(f, target))]
    return {
        "fault": outcome.reason.split("\n", 1)[0] or "; ".join(faults),
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


def line(row: Mapping[str, Any]) -> str:
    """A row on the terminal."""
    parts = []
    for name, of in row["targets"].items():
        kernels = ", ".join(
            f"{k['registers']} regs {k['spills']} spills {k['smem_bytes'] / 1024:.0f} KiB"
            for k in of["kernels"]
        )
        parts.append(f"{name}: {of['fault'] or kernels or 'library calls alone'}")
    return f"{row['key']:24s} " + "  ".join(parts)


def main(arguments: Sequence[str]) -> None:
    """Compile the winners and write what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", type=Path, metavar="RESULT", help="a result file or its folder")
    parser.add_argument("--measurements", type=Path, help="default: those beside the result")
    parser.add_argument("--targets", default=TARGETS, help=f"by comma (default: {TARGETS})")
    parser.add_argument("-o", "--out", type=Path)
    chosen = parser.parse_args(arguments)
    folder = chosen.result if chosen.result.is_dir() else chosen.result.parent
    try:
        document = read_document(chosen.result)
        plans = winners(document, chosen.measurements or folder / MEASUREMENTS)
        targets = [target_named(name) for name in chosen.targets.split(",")]
    except (InputError, OSError) as error:
        parser.error(str(error))
    with CompilePool() as pool:
        rows = list(compiled(plans, targets, pool))
    for row in rows:
        print(line(row))
    if chosen.out:
        report = {
            "schema": 1,
            "command": " ".join(["python -m benchmarks.winners", *arguments]),
            "commit": commit(),
            "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d"),
            "of": {name: document[name] for name in ("machine", "commit", "date")},
            "winners": rows,
        }
        chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
