"""Random programs through the real search, and what float64 says of every family it gives:
``PYTHONPATH=tests python -m adversarial.random_campaign --count 5000 --jobs 2``.

Each family is asked of every tier by itself: the field test, the samples at the real sizes, the
proof. A family is *contradicted* if a second interpreter in float64 sees a difference on random or
structured inputs where the program has a value. A contradicted one that the field test accepts, or
that is proved, is a fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from adversarial.judge import DIFFERENT, OVERFLOWS, verdict
from adversarial.random_programs import random_program
from families import safe_families

from benchmarks.report.provenance import commit
from mirage_py.axioms.proof.prove import prove
from mirage_py.errors import MirageError
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.extract.family import Family
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.printing import format_program, format_ugraph
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.samples.sampled_test import sampled_test
from mirage_py.verify.sizes.small_sizes import instantiate_small

FEW = SearchLimits(rings=("factored",), max_nodes=2_000, max_tensors=400)
# Families of each kind that are judged, and of all.
_EACH, _MOST = 3, 9
TRIALS, SAMPLES = 4, 3


@dataclass(frozen=True)
class Found:
    """What became of one program; ``faults`` holds texts of those that passed and are wrong."""

    seed: int
    counts: Counter[str]
    faults: tuple[str, ...] = ()


def judged(seed: int) -> Found:
    """One program, its families, and every tier."""
    counts: Counter[str] = Counter(programs=1)
    faults: list[str] = []
    program = random_program(seed)
    try:
        normal = normalise(program, seed=0)
        found = search(normal, limits=FEW)
    except MirageError as error:
        counts[f"refused: {type(error).__name__}"] += 1
        return Found(seed, counts)
    if not found.families:
        counts["programs without a family"] += 1
        reasons = [str(reason).replace(program.name, "it") for reason in found.reasons[:1]]
        counts.update(f"no family: {reason}" for reason in reasons)
    tests = FamilyTests(normal, trials=TRIALS, seed=seed)
    for family in _chosen(found.families):
        for safe in safe_families([family]).ugraphs:
            ugraph = instantiate_small(safe)
            tiers = _tiers(tests, normal, ugraph, seed)
            seen = verdict(program, ugraph, seed=seed)
            counts["families"] += 1
            counts[f"{tiers[0]}: {seen}"] += 1
            counts["proved"] += tiers[1]
            if seen == DIFFERENT and (tiers[0] == "accepted" or tiers[1]):
                counts[f"fault of the {'proof' if tiers[1] else 'field test'}"] += 1
                faults.append(
                    f"seed {seed}, {tiers[0]}{', proved' if tiers[1] else ''}\n"
                    f"{format_program(program)}\n{format_ugraph(ugraph)}"
                )
            counts["left to the numerical check"] += seen == OVERFLOWS and tiers[0] == "accepted"
    return Found(seed, counts, tuple(faults))


def _tiers(tests: FamilyTests, program: Any, ugraph: UGraph, seed: int) -> tuple[str, bool]:
    """What the field test and the samples say, and whether there is a proof."""
    try:
        if not tests.run(ugraph).equal:
            return "refused", False
        if not sampled_test(program, ugraph, samples=SAMPLES, seed=seed).equal:
            return "refused at the real sizes", False
    except MirageError:
        return "cannot be judged", False
    return "accepted", prove(program, ugraph) is not None


def _chosen(families: tuple[Family, ...]) -> list[Family]:
    kinds = dict.fromkeys(f.kind for f in families)
    return [f for kind in kinds for f in [g for g in families if g.kind == kind][:_EACH]][:_MOST]


def campaign(seeds: range, jobs: int) -> Iterator[Found]:
    """Every program, in the order of the seeds."""
    if jobs == 1:
        yield from map(judged, seeds)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        yield from pool.map(judged, seeds, chunksize=4)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def main() -> int:
    """1 if a contradicted family was accepted or proved."""
    parser = argparse.ArgumentParser(description=__doc__, prog="adversarial.random_campaign")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--commit", default="", help="what is judged, where git does not know")
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    faults: list[str] = []
    started = time.perf_counter()
    seeds = range(asked.first, asked.first + asked.count)
    for done, found in enumerate(campaign(seeds, asked.jobs), 1):
        counts.update(found.counts)
        faults += found.faults
        seconds = time.perf_counter() - started
        if done % 50 == 0:
            sys.stderr.write(f"{done} of {asked.count}, {seconds:.0f} s, {len(faults)} faults\n")
        if seconds > asked.seconds:
            break
    document = {
        "commit": commit(asked.commit), "count": counts["programs"], "first": asked.first,
        "counts": dict(sorted(counts.items())), "faults": faults,
    }  # fmt: skip
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if asked.report is not None:
        asked.report.write_text(text, encoding="utf-8")
    sys.stdout.write("\n".join(f"{n:8} {what}" for what, n in sorted(counts.items())) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
