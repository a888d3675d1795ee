"""Many mutants judged by many processes: ``python -m adversarial.spread_campaign --count 100000``.

Every kind of mistake gets the same share on every µGraph, or all it has where that is fewer; places
are drawn. ``--shard 1/3`` judges every third task, so that machines share a campaign, and
``--merge`` adds their reports up.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from adversarial.campaign import UNEXPLAINED, Report, begun, committed, table, write
from adversarial.corpus import Site, given, kinds, mutants_of, originals
from adversarial.explain import explanation
from adversarial.trial import EQUAL, WRONG, outcome_of

# Mutants that a process judges before it takes others.
_AT_ONCE = 24


@dataclass(frozen=True)
class Task:
    """Places of one kind on one µGraph."""

    kind: str
    graph: str
    places: tuple[int, ...]


def tasks(count: int, seed: int, available: Mapping[str, Mapping[str, int]]) -> Iterator[Task]:
    """At least ``count`` mutants where there are as many; ``available`` counts them by µGraph and
    kind.
    """
    numbers = [n for row in available.values() for n in row.values()]
    share = next(
        (q for q in range(1, max(numbers) + 1) if sum(min(q, n) for n in numbers) >= count),
        max(numbers),
    )
    for graph, row in available.items():
        for kind, number in row.items():
            draw = np.random.default_rng([seed, sum(map(ord, graph)), sum(map(ord, kind))])
            places = sorted(int(n) for n in draw.permutation(number)[:share])
            for first in range(0, len(places), _AT_ONCE):
                yield Task(kind, graph, tuple(places[first : first + _AT_ONCE]))


def available(graph: str) -> dict[str, int]:
    """How many mutants of each kind a µGraph has."""
    ugraph = originals()[graph][1]
    return {kind: sum(1 for _ in mutants_of(kind, ugraph)) for kind in kinds()}


def judged(task: Task, seed: int) -> list[tuple[Site, str, str]]:
    """Each mutant once, what becomes of it, and why one that is equal is."""
    found: list[tuple[Site, str, str]] = []
    seen: set[str] = set()
    for place, mutant in enumerate(mutants_of(task.kind, originals()[task.graph][1])):
        if place > task.places[-1]:
            break
        if place not in task.places or mutant.digest in seen:
            continue
        seen.add(mutant.digest)
        site = Site(task.kind, task.graph, place)
        result = outcome_of(site, mutant, given(task.graph), seed=seed)
        found.append((site, result, explanation(site) if result == EQUAL else ""))
    return found


def campaign(
    count: int, seed: int, jobs: int, shard: tuple[int, int], seconds: float
) -> Iterator[Report]:
    """The report after every task, until all are done or ``seconds`` are over."""
    report, started = begun(count, seed, None), time.perf_counter()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        names = sorted(originals())
        rows = dict(zip(names, pool.map(available, names), strict=True))
        every = list(tasks(count, seed, rows))
        order = np.random.default_rng(seed).permutation(len(every))
        mine = [every[n] for n in order][shard[0] :: shard[1]]
        futures = [pool.submit(partial(judged, seed=seed), task) for task in mine]
        for future in as_completed(futures):
            for site, result, reason in future.result():
                report.add(site, result, reason)
            report.seconds = time.perf_counter() - started
            yield report
            if report.seconds > seconds:
                pool.shutdown(wait=False, cancel_futures=True)
                return


def merged(paths: Sequence[Path]) -> Report:
    """The sum of several reports of one campaign."""
    first, *others = (committed(path) for path in paths)
    for other in others:
        first.take(other)
    return first


def main() -> int:
    """1 if a wrong µGraph was accepted."""
    parser = argparse.ArgumentParser(description=__doc__, prog="adversarial.spread_campaign")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--merge", type=Path, nargs="+", default=())
    parser.add_argument("--report", type=Path, default=Path("benchmarks/results/mutants.json"))
    asked = parser.parse_args()
    report = Report("", asked.seed, asked.count)
    if asked.merge:
        report = merged(asked.merge)
        write(report, asked.report)
    else:
        number, parts = map(int, asked.shard.split("/"))
        last = 0
        for report in campaign(asked.count, asked.seed, asked.jobs, (number, parts), asked.seconds):
            if report.done - last >= 1000:
                last = report.done
                write(report, asked.report)
                wrong = report.totals.get(WRONG, 0)
                sys.stderr.write(f"{report.done}, {report.seconds:.0f} s, {wrong} wrong\n")
        write(report, asked.report)
    wrongs = report.accepted.get(WRONG, [])
    sys.stdout.write(f"{table(report)}\n\n{len(originals())} µGraphs; accepted and wrong: ")
    unexplained = report.why.get(UNEXPLAINED, 0)
    sys.stdout.write(f"{'; '.join(wrongs) or 'none'}; without an explanation {unexplained}\n")
    return 1 if wrongs else 0


if __name__ == "__main__":
    raise SystemExit(main())
