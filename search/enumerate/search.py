"""The search of one program: single kernels, pairs of kernels, and split reductions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mirage_py.axioms.terms.law import Ring
from mirage_py.collector import rarely_collecting
from mirage_py.reasons import Code, Reason, reason
from mirage_py.search.enumerate.jobs import Job, Setting, Stop, jobs_of
from mirage_py.search.enumerate.journal import Journal
from mirage_py.search.enumerate.runners import Runner, run_here
from mirage_py.search.extract.family import Family
from mirage_py.search.extract.task import Outcome, SearchLimits
from mirage_py.search.space.counters import SearchCounters
from mirage_py.ugraph.ir.program import Program

__all__ = ["Family", "RingReport", "SearchLimits", "SearchResult", "search"]


# The reason that an outcome gives for meeting a bound.
_BOUNDS = {
    "max_nodes": Code.BOUND_ON_NODES,
    "rounds": Code.BOUND_ON_ROUNDS,
    "max_tensors": Code.POOL_OUTGREW,
    "max_intermediates": Code.INTERMEDIATES_CUT,
}


@dataclass(frozen=True, slots=True)
class RingReport:
    """How far one ring of laws was searched. ``classes`` are those of the unsplit program.

    ``cut_by`` names the bounds that were met where it is not exhausted, by their names in
    SearchLimits, or ``time``.
    """

    ring: Ring
    exhausted: bool
    saturated: bool
    classes: int
    families: int
    cut_by: tuple[str, ...] = ()


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
    reasons: tuple[Reason, ...]
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
    in_vain_by: float | None = None,
    should_stop: Stop = lambda: False,
    journal: Path | None = None,
    runner: Runner = run_here,
) -> SearchResult:
    """All families found, none if there are none. The same seed gives the same result everywhere.

    Where ``deadline`` (of time.monotonic) passes or ``should_stop`` says so, what has been found so
    far is returned; as long as that is nothing, ``in_vain_by`` is the deadline. What ``journal``
    holds is not searched again, and what is finished is added to it. ``runner`` runs the jobs, in
    this process or in others: the result is the same.

    A program that has no abstract form or no value in a field gives no family and a reason. Raises
    InputError for a journal that is another search's or cannot be written.
    """
    started = time.perf_counter()
    setting = Setting(program, seed, limits or SearchLimits())
    jobs = tuple(jobs_of(setting))
    book = Journal(journal, setting) if journal is not None else None
    outcomes: dict[Job, Outcome] = dict(book.known) if book is not None else {}

    by = None if deadline is None else max(deadline, in_vain_by or deadline)

    def stop() -> bool:
        if should_stop():
            return True
        has_found = any(outcome.families for outcome in outcomes.values())
        until = deadline if has_found else by
        return until is not None and time.monotonic() >= until

    def done(job: Job, outcome: Outcome) -> None:
        outcomes[job] = outcome
        if book is not None and not outcome.stopped:
            book.add(job, outcome)

    left = [job for job in jobs if job not in outcomes]
    if left:
        with rarely_collecting():
            runner(setting, left, stop=stop, deadline=by, done=done)
    # In the order of the jobs, whoever finished first.
    finished = [(job, outcomes[job]) for job in jobs if job in outcomes]
    return _result(setting, jobs, finished, time.perf_counter() - started)


def _result(
    setting: Setting,
    jobs: Sequence[Job],
    done: Sequence[tuple[Job, Outcome]],
    seconds: float,
) -> SearchResult:
    total = Outcome()
    reports = []
    for ring in setting.limits.rings:
        outcomes = [outcome for job, outcome in done if job.ring == ring]
        known = len(total.families)
        for outcome in outcomes:
            total.merge(outcome)
        missing = sum(job.ring == ring for job in jobs) - len(outcomes)
        if missing:
            total.stopped = True
        if outcomes:
            found = len(total.families) - known
            reports.append(_report(ring, outcomes, missing, found))
    if reports and not total.counter.hits:
        total.reasons.append(reason(Code.NO_CONFIGURATION))
    if total.stopped:
        total.reasons.append(reason(Code.OUT_OF_TIME))
    return SearchResult(
        families=tuple(sorted(total.families.values(), key=lambda f: f.cost_us)),
        counters=total.counter.freeze(),
        exhausted=bool(reports) and reports[0].exhausted,
        rings=tuple(reports),
        reasons=tuple(dict.fromkeys(total.reasons)),
        seconds=seconds,
        stopped=total.stopped,
    )


def _report(ring: Ring, outcomes: Sequence[Outcome], missing: int, families: int) -> RingReport:
    exhausted = not missing and all(outcome.exhausted for outcome in outcomes)
    met = [reason.code for outcome in outcomes for reason in outcome.reasons]
    cut_by = tuple(bound for bound, code in _BOUNDS.items() if code in met)
    if missing or any(outcome.stopped for outcome in outcomes):
        cut_by = (*cut_by, "time")
    return RingReport(
        ring,
        exhausted,
        saturated=any(outcome.saturated for outcome in outcomes),
        classes=max(outcome.classes for outcome in outcomes),
        families=families,
        cut_by=cut_by,
    )
