"""Searching the workloads where egglog is, measuring them where the GPU is.

``python -m benchmarks.families DIR`` writes one JSON file a workload: the program as given, its
normal form, and every stabilised family that the field test found equal. Reading them needs neither
egglog nor lark.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workloads import Workload, suite
from mirage_py.ugraph.json_form import from_json, to_json
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import UGraph


@dataclass(frozen=True, slots=True)
class Searched:
    """A workload's program and families, and what finding them took."""

    program: Program
    families: tuple[UGraph, ...]
    search_s: float
    verify_s: float


def search_workload(workload: Workload) -> Searched:
    """Search and verify one workload on this machine."""
    from mirage_py.frontend.spec import parse_file
    from mirage_py.pipeline import normalise, verify_families
    from mirage_py.search.search import search
    from mirage_py.search.stabilize import stabilize

    program = parse_file(workload.spec, sizes=workload.sizes)
    normal = normalise(program)
    found = search(normal)
    started = time.perf_counter()
    verified = verify_families(normal, [stabilize(f.ugraph) for f in found.families], seed=0)
    verify_s = time.perf_counter() - started
    return Searched(program, tuple(v.family for v in verified.values()), found.seconds, verify_s)


def write(searched: Searched, path: Path) -> None:
    """One JSON file."""
    document = {
        "program": to_json(searched.program),
        "families": [to_json(f) for f in searched.families],
        "search_s": round(searched.search_s, 3),
        "verify_s": round(searched.verify_s, 3),
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def read(path: Path) -> Searched:
    """The file's content; raises FormatError where it is not one of ours."""
    document = json.loads(path.read_text(encoding="utf-8"))
    program = from_json(document["program"])
    families = tuple(from_json(f) for f in document["families"])
    if not isinstance(program, Program) or not all(isinstance(f, UGraph) for f in families):
        raise TypeError(f"{path} holds something else")
    return Searched(
        program,
        tuple(f for f in families if isinstance(f, UGraph)),
        document["search_s"],
        document["verify_s"],
    )


def main(folder: Path) -> None:
    """Search the suite."""
    folder.mkdir(parents=True, exist_ok=True)
    for workload in suite():
        searched = search_workload(workload)
        write(searched, folder / f"{workload.key}.json")
        print(
            f"{workload.key:20s} {len(searched.families):3d} families, search "
            f"{searched.search_s:.2f} s, verification {searched.verify_s:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
