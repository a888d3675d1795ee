"""CPU seconds of each stage before anything is compiled, for programs that nobody tuned for.

python -m benchmarks.search.stage_times -o OUT.json [--kernelbench CHECKOUT] [--only NAMES]
python -m benchmarks.search.stage_times -o OUT.json --search --only large

Each program is searched, ranked and verified as effort quick does it on a GPU, with one thread and
without a budget; with ``--search``, searched in the factored ring, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.report.provenance import commit
from benchmarks.search.untuned import untuned
from mirage_py.errors import MirageError
from mirage_py.pipeline import pipeline
from mirage_py.pipeline.partition.limits import operator_count
from mirage_py.pipeline.pipeline import Request, normalise, partition_of, rank_plans
from mirage_py.pipeline.selection.backends import limits_for
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.space.abstraction import reduced_dims
from mirage_py.search.space.short_rows import has_short_rows
from mirage_py.search.stabilize.safe import SafetyScreen
from mirage_py.targets import target
from mirage_py.ugraph.ir.program import Program

Json = dict[str, Any]

# Where each stage begins. Screening happens within rankings: a clock stands while another one runs.
STAGES: dict[str, tuple[tuple[Any, str], ...]] = {
    "search": ((pipeline, "search"),),
    "screen": ((SafetyScreen, "stable"), (SafetyScreen, "passes")),
    "rank": ((pipeline, "best_families"), (pipeline, "rank_for")),
    "verify": ((pipeline, "verify_families"),),
}
_TARGET = "h200"


class _Clocks:
    """CPU seconds of each stage, without those of stages within it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._inside: list[float] = []

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a clock."""

        def called(*args: Any, **kwargs: Any) -> Any:
            begun = time.process_time()
            self._inside.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.process_time() - begun
                self.seconds[stage] += spent - self._inside.pop()
                if self._inside:
                    self._inside[-1] += spent

        return called

    @contextmanager
    def running(self) -> Iterator[None]:
        """The stages of the pipeline with clocks around them."""
        with ExitStack() as stack:
            for stage, places in STAGES.items():
                for owner, name in places:
                    clocked = self.around(stage, getattr(owner, name))
                    stack.enter_context(patch.object(owner, name, clocked))
            yield


def row_of(program: Program) -> Json:
    """The seconds of a program, and the best plan by the model of each part of it."""
    request = Request(target=_TARGET, effort="quick")
    clocks = _Clocks()
    begun = time.process_time()
    row: Json = {"nodes": len(program.nodes), "dims": len(program.dims), "parts": []}
    with clocks.running():
        cut = partition_of(program)
        for part in (program,) if cut is None else cut.parts:
            row["parts"].append(_part(part, request))
    total = time.process_time() - begun
    seconds = {**clocks.seconds, "other": total - sum(clocks.seconds.values())}
    return {**row, "cpu_s": {s: round(x, 2) for s, x in seconds.items()}, "total": round(total, 2)}


def _part(part: Program, request: Request) -> Json:
    try:
        found = rank_plans(part, target(_TARGET), request)
    except MirageError as error:
        return {"refused": error.what}
    ended = "exhausted" if found.found.exhausted else "cut"
    row: Json = {"ended": ended, "families": len(found.found.families)}
    row |= {"ranked": len(found.ranked), "verified": len(found.verified)}
    if found.instances:
        best = found.instances[0]
        row |= {"best_us": round(best.estimate.time_us, 4), "best": best.plan.ugraph.digest}
    return row


def searched_row(program: Program) -> Json:
    """CPU seconds of the search in the factored ring, of each part of a program that is cut."""
    row: Json = {"operators": operator_count(program), "dims": len(program.dims)}
    begun = time.process_time()
    cut = partition_of(program)
    row["parts"] = [_searched(p) for p in ((program,) if cut is None else cut.parts)]
    return {**row, "total": round(time.process_time() - begun, 2)}


def _searched(part: Program) -> Json:
    begun = time.process_time()
    normal = normalise(part)
    limits = limits_for("cuda", SearchLimits(rings=("factored",)), target(_TARGET))
    if has_short_rows(normal):
        limits = replace(limits, max_kernels=1)
    found = search(normal, limits=limits)
    return {
        "ended": "exhausted" if found.exhausted else "cut",
        "by": [r.cut_by for r in found.rings],
        "reasons": sorted({r.code.name for r in found.reasons}),
        "families": len(found.families),
        "reduced": len(reduced_dims(normal)),
        "cpu_s": round(time.process_time() - begun, 2),
    }


def _in_child(
    row_of: Callable[[Program], Json],
    names: Sequence[str],
    checkout: Path | None,
    limit_s: int,
    pipe: Connection,
) -> None:
    known = untuned(checkout)
    for name in names:
        spent = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (spent + limit_s, resource.RLIM_INFINITY))
        try:
            row = row_of(known[name]())
        except MirageError as error:
            row = {"refused": error.what}
        pipe.send(row)


def measured(
    row_of: Callable[[Program], Json], names: Sequence[str], checkout: Path | None, limit_s: int
) -> Iterator[tuple[str, Json]]:
    """The row of each program. One process does them in turn; where a program takes more than this
    much CPU time that ends it, and another one goes on behind it.
    """
    context = multiprocessing.get_context("spawn")
    left = list(names)
    while left:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_in_child, args=(row_of, left, checkout, limit_s, theirs))
        child.start()
        theirs.close()
        while left:
            try:
                row: Json = ours.recv()
            except EOFError:
                yield left.pop(0), {"unfinished": True, "total": limit_s}
                break
            yield left.pop(0), row
        child.join()


def main(arguments: Sequence[str]) -> None:
    """Measure, and write after each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="result file")
    parser.add_argument("--kernelbench", type=Path, help="a checkout")
    parser.add_argument("--only", default="", help="names or their beginnings, by comma")
    parser.add_argument("--search", action="store_true", help="only the factored ring's search")
    parser.add_argument("--limit", type=int, default=240, help="CPU seconds for one program")
    chosen = parser.parse_args(arguments)
    asked = tuple(name for name in chosen.only.split(",") if name)
    document: Json = {
        "commit": commit(),
        "command": " ".join(["python -m benchmarks.search.stage_times", *arguments]),
        "limit_s": chosen.limit,
        "rows": {},
    }
    of_row = searched_row if chosen.search else row_of
    names = [n for n in untuned(chosen.kernelbench) if not asked or n.startswith(asked)]
    for name, row in measured(of_row, names, chosen.kernelbench, chosen.limit):
        document["rows"][name] = row
        stages = " ".join(f"{s} {x:6.2f}" for s, x in row.get("cpu_s", {}).items())
        stages += " ".join(p["ended"] for p in row.get("parts", ()) if chosen.search)
        print(f"{name:44s} {row.get('total', 0.0):7.2f}  {stages}", flush=True)
        chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
