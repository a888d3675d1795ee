"""The plans of the numerical campaign: for every example and element type some of each kind.

``python -m benchmarks.numerical.numerical_plans DIR [NAME ...]`` searches where egglog is and
writes one JSON file for each example and type. Reading them needs neither egglog nor lark. Sizes
are such that a reference in float64 takes less than a second.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workloads.workloads import EXAMPLES
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import from_json, to_json

TYPES = ("f16", "bf16", "f32")
_LARGEST = {"B": 32, "T": 64, "S": 1024, "D": 1024, "N": 768}
_TARGET = "h200"
# Of a kind: the best, and the next ones with other tiles.
_OF_A_KIND = 2


@dataclass(frozen=True, slots=True)
class Emitted:
    """A plan of an example in a type; ``kind`` says of what sort and of which back end."""

    example: str
    dtype: str
    kind: str
    program: Program
    plan: Plan

    @property
    def name(self) -> str:
        """Names it in a table."""
        return f"{self.example}/{self.dtype}/{self.kind}"


def example_program(path: Path, dtype: str) -> Program:
    """The example in this type, no larger than a reference takes a moment for."""
    from mirage_py.frontend.spec import parse, parse_file

    sizes = {
        d.name.upper(): min(d.size, _LARGEST[d.name.upper()])
        for d in parse_file(path).dims
        if d.name.upper() in _LARGEST
    }
    text = path.read_text(encoding="utf-8").replace(": f16", f": {dtype}")
    return parse(text, name=path.stem, sizes=sizes)


def search_example(path: Path, dtype: str) -> Iterator[Emitted]:
    """Some of its plans, of both back ends."""
    from mirage_py.pipeline.pipeline import Request, rank_plans
    from mirage_py.targets import target

    program = example_program(path, dtype)
    for backend in ("triton", "cuda"):
        ranking = rank_plans(program, target(_TARGET), Request(_TARGET, backend))
        found: dict[str, int] = {}
        for instance in ranking.instances:
            number = found.get(instance.kind, 0)
            if number < _OF_A_KIND:
                found[instance.kind] = number + 1
                kind = f"{backend} {instance.kind} {number}"
                yield Emitted(path.stem, dtype, kind, program, instance.plan)


def write(found: list[Emitted], path: Path) -> None:
    """One JSON file: the program, and its plans by kind."""
    rows = {
        "example": found[0].example,
        "dtype": found[0].dtype,
        "program": to_json(found[0].program),
        "plans": [{"kind": e.kind, "plan": to_json(e.plan)} for e in found],
    }
    path.write_text(json.dumps(rows), encoding="utf-8")


def read(folder: Path) -> Iterator[Emitted]:
    """All plans of a folder, by file name."""
    for path in sorted(folder.glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        program = from_json(held["program"])
        for row in held["plans"]:
            plan = from_json(row["plan"])
            if not isinstance(plan, Plan) or not isinstance(program, Program):
                raise TypeError(f"{path} holds something else")
            yield Emitted(held["example"], held["dtype"], row["kind"], program, plan)


def main() -> None:
    """Search all examples, or those of these names, in all types."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--type", choices=TYPES, action="append")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLES.glob("*.math")):
        for dtype in asked.type or TYPES:
            if asked.names and path.stem not in asked.names:
                continue
            started = time.perf_counter()
            found = list(search_example(path, dtype))
            if found:
                write(found, asked.folder / f"{path.stem}-{dtype}.json")
            seconds = time.perf_counter() - started
            print(f"{path.stem}-{dtype:5s} {len(found)} plans, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
