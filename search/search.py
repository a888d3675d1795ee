"""Searches one program for its kernels: alone, in pairs, and with a reduction split."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mirage_py.axioms.law import Ring
from mirage_py.errors import MirageError
from mirage_py.search.counters import SearchCounters
from mirage_py.search.family import Family
from mirage_py.search.jobs import Job, Setting, jobs_of, run, task_of
from mirage_py.search.task import Outcome, SearchLimits
from mirage_py.ugraph.field import DivisionByZero
from mirage_py.ugraph.program import Program

__all__ = ["Family", "RingReport", "SearchLimits", "SearchResult", "search"]


@dataclass(frozen=True, slots=True)
class RingReport:
    """How far one ring of laws was searched. ``classes`` are those of the unsplit program."""

    ring: Ring
    exhausted: bool
    saturated: bool
    classes: int
    families: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """``families`` are sorted by cost, cheapest first.

    ``exhausted``  the space of the first ring was gone through: saturation and every closure ended
                   by themselves
    ``rings``      the same for every ring that was begun
    ``reasons``    why there is less than could be: bounds that were hit, hits that did not survive
                   the second field, what the search cannot take
    """

    families: tuple[Family, ...]
    counters: SearchCounters
    exhausted: bool
    rings: tuple[RingReport, ...]
    reasons: tuple[str, ...]
    seconds: float
    stopped: bool = False

    @property
    def classes(self) -> int:
        """Classes of abstract expressions in the first ring."""
        return self.rings[0].classes if self.rings else 0

    @property
    def saturated(self) -> bool:
        """Whether the laws of the first ring had nothing to add."""
        return bool(self.rings) and self.rings[0].saturated


def search(
    program: Program,
    *,
    seed: int = 0,
    limits: SearchLimits | None = None,
    deadline: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SearchResult:
    """All families found, none if there are none. The same seed gives the same result everywhere.

    Where ``deadline`` (of time.monotonic) passes or ``should_stop`` says so, what has been found so
    far is returned. Does not raise: a program that has no abstract form or no value in a field
    gives no family and a reason.
    """
    started = time.perf_counter()
    setting = Setting(program, seed, limits or SearchLimits())

    def stop() -> bool:
        return should_stop() or (deadline is not None and time.monotonic() >= deadline)

    done: list[tuple[Job, Outcome]] = []
    for job in jobs_of(setting):
        outcome = _run(setting, job, stop)
        done.append((job, outcome))
        if outcome.stopped:
            break
    return _result(setting, done, time.perf_counter() - started)


def _run(setting: Setting, job: Job, stop: Callable[[], bool]) -> Outcome:
    try:
        return run(setting, job, stop)
    except (MirageError, DivisionByZero) as error:
        outcome = Outcome()
        outcome.give_up(str(error))
        return outcome


def _result(setting: Setting, done: list[tuple[Job, Outcome]], seconds: float) -> SearchResult:
    total = Outcome()
    reports = []
    for ring in setting.limits.rings:
        outcomes = [outcome for job, outcome in done if job.ring == ring]
        if not outcomes:
            continue
        known = len(total.families)
        for outcome in outcomes:
            total.merge(outcome)
        reports.append(_report(setting, ring, outcomes, len(total.families) - known))
    if not total.counter.hits:
        total.reasons.append("no configuration reaches all outputs")
    if total.stopped:
        total.reasons.append("stopped before the space was gone through")
    return SearchResult(
        families=tuple(sorted(total.families.values(), key=lambda f: f.cost_us)),
        counters=total.counter.freeze(),
        exhausted=bool(reports) and reports[0].exhausted,
        rings=tuple(reports),
        reasons=tuple(dict.fromkeys(total.reasons)),
        seconds=seconds,
        stopped=total.stopped,
    )


def _report(setting: Setting, ring: Ring, outcomes: list[Outcome], families: int) -> RingReport:
    exhausted = all(outcome.exhausted for outcome in outcomes)
    try:
        table = task_of(setting, ring, None).table
    except MirageError:
        return RingReport(ring, False, False, 0, families)
    return RingReport(ring, exhausted, table.saturated, table.classes, families)
