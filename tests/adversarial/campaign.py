"""Many mutants, judged, and the report: ``python -m adversarial.campaign --count 10000 --seed 0``.

It works in chunks and writes the report after each: a second call with the same arguments goes on
where the first one ended. ``--jobs`` processes judge side by side, with the same result.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from subprocess import run
from typing import Any

from adversarial.corpus import Site, descriptions, kinds, originals, sites
from adversarial.explain import explanation
from adversarial.trial import EQUAL, FLOATS, OUTCOMES, WRONG, outcome

_CHUNK = 2000
_AT_ONCE = 8
UNEXPLAINED = "unexplained"
_DEFAULT_REPORT = Path("benchmarks/results/mutants.json")


@dataclass
class Report:
    """``counts`` has for each kind how many mutants had each outcome, ``programs`` the same for
    each µGraph; ``accepted`` every mutant that was, by outcome; ``why`` how many of the equal ones
    have which explanation.
    """

    commit: str
    seed: int
    count: int
    done: int = 0
    seconds: float = 0.0
    totals: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    programs: dict[str, dict[str, int]] = field(default_factory=dict)
    why: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, list[str]] = field(default_factory=dict)

    def add(self, site: Site, found: str, reason: str) -> None:
        """Count one mutant; ``reason`` is why it is equal."""
        self.done += 1
        self.totals[found] = self.totals.get(found, 0) + 1
        for table, key in ((self.counts, site.kind), (self.programs, site.graph)):
            row = table.setdefault(key, {})
            row[found] = row.get(found, 0) + 1
        if found in (EQUAL, FLOATS, WRONG):
            self.accepted.setdefault(found, []).append(str(site))
        if found == EQUAL:
            reason = reason or UNEXPLAINED
            self.why[reason] = self.why.get(reason, 0) + 1
            if reason == UNEXPLAINED:
                self.accepted.setdefault(UNEXPLAINED, []).append(str(site))

    def take(self, other: Report) -> None:
        """Add another part of the same campaign."""
        self.done += other.done
        self.seconds += other.seconds
        for mine, its in ((self.totals, other.totals), (self.why, other.why)):
            for key, number in its.items():
                mine[key] = mine.get(key, 0) + number
        for mine, its in ((self.counts, other.counts), (self.programs, other.programs)):
            for key, row in its.items():
                kept = mine.setdefault(key, {})
                for name, number in row.items():
                    kept[name] = kept.get(name, 0) + number
        for name, places in other.accepted.items():
            self.accepted.setdefault(name, []).extend(places)

    def document(self) -> dict[str, Any]:
        """As it is written, with what each kind does."""
        data = asdict(self)
        data["totals"] = {name: self.totals.get(name, 0) for name in OUTCOMES}
        said = descriptions()
        data["counts"] = {
            kind: {"what": said[kind], **{o: self.counts.get(kind, {}).get(o, 0) for o in OUTCOMES}}
            for kind in kinds()
        }
        data["programs"] = dict(sorted(self.programs.items()))
        data["why"] = dict(sorted(self.why.items()))
        return data


def campaign(count: int, seed: int, path: Path | None, jobs: int = 1) -> Iterator[Report]:
    """The report after every chunk."""
    report = begun(count, seed, path)
    left = islice(sites(count, seed), report.done, None)
    if jobs == 1:
        yield from _judged(report, left, partial(map, partial(judge, seed=seed)), path)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        spread = partial(pool.map, partial(judge, seed=seed), chunksize=_AT_ONCE)
        yield from _judged(report, left, spread, path)


def judge(site: Site, seed: int) -> tuple[str, str]:
    """What becomes of a mutant, and why one that is equal is."""
    found = outcome(site, seed=seed)
    return found, explanation(site) if found == EQUAL else ""


def _judged(
    report: Report,
    left: Iterator[Site],
    judged: Callable[[Iterable[Site]], Iterable[tuple[str, str]]],
    path: Path | None,
) -> Iterator[Report]:
    while chunk := list(islice(left, _CHUNK)):
        started = time.perf_counter()
        for site, (found, reason) in zip(chunk, judged(chunk), strict=True):
            report.add(site, found, reason)
        report.seconds += time.perf_counter() - started
        if path is not None:
            write(report, path)
        yield report


def write(report: Report, path: Path) -> None:
    """As JSON."""
    text = json.dumps(report.document(), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def table(report: Report) -> str:
    """The counts of all kinds as a Markdown table."""
    lines = [f"| kind | tried | {' | '.join(OUTCOMES)} |", "|---|" + "---:|" * (len(OUTCOMES) + 1)]
    for kind in (*kinds(), "all"):
        row = report.totals if kind == "all" else report.counts.get(kind, {})
        cells = [str(row.get(o, 0) or "") for o in OUTCOMES]
        lines.append(f"| {kind.replace('_', ' ')} | {sum(row.values())} | {' | '.join(cells)} |")
    return "\n".join(lines)


def begun(count: int, seed: int, path: Path | None) -> Report:
    """A report of this commit: that of a campaign that was interrupted, or a new one."""
    commit = run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    if path is not None and path.is_file():
        known = committed(path)
        if (known.commit, known.seed, known.count) == (commit, seed, count):
            return known
    return Report(commit, seed, count)


def committed(path: Path) -> Report:
    """The report that a file holds."""
    data = json.loads(path.read_text(encoding="utf-8"))
    for row in data["counts"].values():
        del row["what"]
    return Report(**data)


def main() -> int:
    """1 if a wrong µGraph was accepted, or an equal one that nobody has explained."""
    parser = argparse.ArgumentParser(description=__doc__, prog="adversarial.campaign")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", type=Path, default=_DEFAULT_REPORT)
    asked = parser.parse_args()
    report = Report("", asked.seed, asked.count)
    for report in campaign(asked.count, asked.seed, asked.report, asked.jobs):
        sys.stderr.write(f"{report.done} of {asked.count}, {report.seconds:.0f} s\n")
    wrong = report.accepted.get(WRONG, [])
    sys.stdout.write(f"{table(report)}\n\n{len(originals())} µGraphs; accepted and wrong: ")
    sys.stdout.write(f"{'; '.join(wrong) or 'none'}\n{report.why}\n")
    return 1 if wrong or UNEXPLAINED in report.why else 0


if __name__ == "__main__":
    raise SystemExit(main())
