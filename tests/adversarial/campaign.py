"""Many mutants, judged, and the report: ``PYTHONPATH=tests python -m adversarial.campaign --count
110000 --jobs 32``.

``--jobs`` processes judge in parallel, with the same result. ``--shard 1/3`` judges every third
mutant from the second on, so that machines share a campaign; ``--merge`` adds their reports up.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from adversarial.corpus import Site, sites
from adversarial.explain import explanation
from adversarial.report import UNEXPLAINED, Report, merged, table, write
from adversarial.trial import EQUAL, WRONG, outcome

from benchmarks.report.provenance import commit

# Mutants that a process takes at once, and such portions that wait for each process.
_AT_ONCE, _WAITING = 16, 4
_WRITTEN_AFTER = 2000
_DEFAULT_REPORT = Path("benchmarks/results/mutants.json")
Judged = list[tuple[Site, str, str]]


def judged(portion: list[Site], seed: int) -> Judged:
    """What becomes of each mutant, and why one that is equal is."""
    found: Judged = []
    for site in portion:
        result = outcome(site, seed=seed)
        found.append((site, result, explanation(site) if result == EQUAL else ""))
    return found


def campaign(report: Report, jobs: int = 1, shard: tuple[int, int] = (0, 1)) -> Iterator[Report]:
    """The report after every portion. Processes judge while the next mutants are drawn."""
    drawn = islice(sites(report.count, report.seed), shard[0], None, shard[1])
    portions = iter(lambda: list(islice(drawn, _AT_ONCE)), [])
    found = (judged(portion, report.seed) for portion in portions)
    if jobs > 1:
        found = _spread(portions, report.seed, jobs)
    for portion in found:
        for site, result, reason in portion:
            report.add(site, result, reason)
        yield report


def _spread(portions: Iterator[list[Site]], seed: int, jobs: int) -> Iterator[Judged]:
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    waiting: deque[Future[Judged]] = deque()
    try:
        for portion in portions:
            waiting.append(pool.submit(judged, portion, seed))
            if len(waiting) > jobs * _WAITING:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def main() -> int:
    """1 if a wrong µGraph was accepted."""
    parser = argparse.ArgumentParser(description=__doc__, prog="adversarial.campaign")
    parser.add_argument("--count", type=int, default=10000, help="all there are, if fewer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then it stops")
    parser.add_argument("--commit", default="", help="what is judged, where git does not know")
    parser.add_argument("--merge", type=Path, nargs="+", default=())
    parser.add_argument("--report", type=Path, default=_DEFAULT_REPORT)
    asked = parser.parse_args()
    report = Report(commit(asked.commit), asked.seed, asked.count)
    if asked.merge:
        report = merged(asked.merge)
    else:
        number, parts = map(int, asked.shard.split("/"))
        _run(report, asked.jobs, (number, parts), asked.seconds, asked.report)
    write(report, asked.report)
    wrong = report.accepted.get(WRONG, [])
    sys.stdout.write(f"{table(report)}\n\n{len(report.graphs)} µGraphs; accepted and wrong: ")
    unexplained = report.why.get(UNEXPLAINED, 0)
    sys.stdout.write(f"{'; '.join(wrong) or 'none'}; without an explanation {unexplained}\n")
    return 1 if wrong else 0


def _run(report: Report, jobs: int, shard: tuple[int, int], seconds: float, path: Path) -> None:
    started, written = time.perf_counter(), 0
    for _ in campaign(report, jobs, shard):
        spent = time.perf_counter() - started
        if report.done - written >= _WRITTEN_AFTER:
            written = report.done
            write(report, path)
            wrong = report.totals.get(WRONG, 0)
            sys.stderr.write(f"{report.done}, {spent:.0f} s, {wrong} wrong\n")
        if spent > seconds:
            break


if __name__ == "__main__":
    raise SystemExit(main())
