"""The search benchmark: seconds of a search, and what each of its parts saves.

python -m benchmarks.search -o OUT.json            # measure: every example, then the ablation
python -m benchmarks.search --read OUT.json --docs # write docs/notes/search_time.md

Every search runs in a fresh process on one thread (benchmarks/search/search_cell.py), the fastest
of ``--repeats`` counts. The ablation follows the one of Mirage (OSDI 2025): seconds against the
number of operators that a kernel may have, with and without each part.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report.provenance import commit
from benchmarks.search import search_page, search_published
from benchmarks.search.search_cell import EXAMPLES, ROOT, Measured, Request, measure, measure_here
from mirage_py.search.space.abstraction import reduced_dims

SCHEMA = 1
ABLATED = ("rmsnorm_matmul", "attention", "lora", "gated_mlp", "ntrans")
OPERATORS = range(1, 12)
# Without merging or without classes the pool has no end worth waiting for: time is the bound, and
# this keeps it in memory.
_MANY_TENSORS = 1_000_000

Measure = Callable[[Request], Measured]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to search: the limits that differ from the default, and the processes."""

    name: str
    limits: dict[str, Any] = field(default_factory=dict)
    processes: int = 1


# What each program is searched as. "both rings" is what the pipeline does.
RUNS = (
    Variant("factored", {"rings": ["factored"]}),
    Variant("expanded", {"rings": ["expanded"]}),
    Variant("both rings"),
    Variant("both rings, 2 processes", processes=2),
)
_NO_CLASSES = {"rings": ["factored"], "pruning": "none", "max_tensors": _MANY_TENSORS}
_NO_MERGING = {"rings": ["factored"], "merging": "structure", "max_tensors": _MANY_TENSORS}
ABLATION = (
    Variant("whole", {"rings": ["factored"]}),
    Variant("2 processes", {"rings": ["factored"]}, processes=2),
    Variant("without merging", _NO_MERGING),
    Variant("without classes", _NO_CLASSES),
    Variant("without classes, one kernel", {**_NO_CLASSES, "max_kernels": 1}),
)


def all_programs() -> tuple[str, ...]:
    """Every example, then every large one."""
    specs = [*sorted(EXAMPLES.glob("*.math")), *sorted((EXAMPLES / "large").glob("*.math"))]
    return tuple(spec.relative_to(EXAMPLES).with_suffix("").as_posix() for spec in specs)


def program_row(name: str, limit_s: float, measured: Measure) -> dict[str, Any]:
    """What a program is, and what searching it takes in every run of RUNS."""
    program = Request(name, limit_s).read_program()
    return {
        "program": name,
        "dims": {d: program.sizes[d] for d in program.dim_names},
        "reduced": list(reduced_dims(program)),
        "runs": {
            run.name: measured(Request(name, limit_s, run.processes, run.limits)) for run in RUNS
        },
    }


def ablation_cells(
    name: str, operators: Sequence[int], limit_s: float, measured: Measure
) -> Iterator[dict[str, Any]]:
    """A cell for each variant and bound. Behind one that did not finish none is tried."""
    for variant in ABLATION:
        gave_up = False
        for most in operators:
            cell = {"program": name, "variant": variant.name, "max_operators": most}
            if gave_up:
                yield {**cell, "status": "not run"}
                continue
            limits = {**variant.limits, "max_operators": most}
            cell |= measured(Request(name, limit_s, variant.processes, limits))
            gave_up = cell["status"] != "finished"
            yield cell


def header(command: str, limit_s: float, repeats: int) -> dict[str, Any]:
    """Where, when and how."""
    return {
        "schema": SCHEMA,
        "machine": machine(),
        "command": command,
        "commit": commit(),
        "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d"),
        "limit_s": limit_s,
        "repeats": repeats,
        "programs": [],
        "ablation": [],
        "published": search_published.document(),
    }


def machine() -> dict[str, Any]:
    """The processor and how busy it was with other work."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def line(name: str, measured: Measured) -> str:
    """A search on the terminal."""
    if "cpu_s" not in measured:
        return f"{name:60s} {measured['status']}"
    seconds = f"{measured['cpu_s']:8.2f} s CPU {measured['wall_s']:8.2f} s"
    after = "" if measured["status"] == "finished" else f"  {measured['status']}"
    return (
        f"{name:60s} {seconds}  {measured['families']:4d} families "
        f"{measured['candidates']:9,d} candidates {measured['peak_mib']:5d} MiB{after}"
    )


def measure_all(chosen: argparse.Namespace, command: str) -> dict[str, Any]:
    """The whole document; written after every row, so that what was measured is kept."""
    document = header(command, chosen.limit, chosen.repeats)

    def measured(request: Request) -> Measured:
        found = measure_here(request) if chosen.quick else measure(request, chosen.repeats)
        most = request.limits.get("max_operators")
        what = [request.program, "+".join(request.limits.get("rings", ["both"]))]
        what += [f"{n}={v}" for n, v in request.limits.items() if n in ("pruning", "merging")]
        what += [f"<= {most} operators"] if most is not None else []
        what += [f"{request.processes} processes"] if request.processes > 1 else []
        print(line(", ".join(what), found), flush=True)
        return found

    def keep() -> None:
        if chosen.out:
            chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    for name in chosen.programs:
        document["programs"].append(program_row(name, chosen.limit, measured))
        keep()
    for name in [n for n in chosen.ablated if n in chosen.programs]:
        cells = ablation_cells(name, chosen.operators, chosen.limit, measured)
        for cell in cells:
            document["ablation"].append(cell)
            keep()
    return document


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, help="result file")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one search")
    parser.add_argument("--repeats", type=int, default=3, help="of what is fast")
    parser.add_argument("--programs", default="", help="examples such as lora, by comma")
    parser.add_argument("--no-ablation", action="store_true", help="only the examples")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--read", type=Path, help="a result file to read instead of measuring")
    parser.add_argument("--docs", action="store_true", help="write docs/notes/search_time.md")
    chosen = parser.parse_args(arguments)
    known = all_programs()
    names = [n for n in chosen.programs.split(",") if n]
    if unknown := [n for n in names if n not in known]:
        parser.error(f"unknown program {', '.join(unknown)}; the programs are {', '.join(known)}")
    chosen.programs = names or (["softmax"] if chosen.quick else list(known))
    chosen.ablated = chosen.programs if chosen.quick else ABLATED
    if chosen.no_ablation:
        chosen.ablated = ()
    chosen.operators = (2,) if chosen.quick else OPERATORS
    return chosen


def main(arguments: Sequence[str]) -> None:
    """Measure, or read what was measured; then the page."""
    chosen = _options(arguments)
    if chosen.read:
        document = json.loads(chosen.read.read_text(encoding="utf-8"))
    else:
        document = measure_all(chosen, " ".join(["python -m benchmarks.search", *arguments]))
    if chosen.docs:
        search_page.write(document, ROOT / "docs/notes")


if __name__ == "__main__":
    main(sys.argv[1:])
