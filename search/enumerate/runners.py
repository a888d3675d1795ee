"""Runners of the jobs of a search: in this process, one after the other, or elsewhere.

A runner passes every finished job to ``done``, in any order, and skips jobs for which no time is
left. The process pool is in mirage_py.pipeline.pools.search_pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mirage_py.errors import MirageError
from mirage_py.reasons import Code, reason
from mirage_py.search.enumerate.jobs import Job, Setting, Stop, run
from mirage_py.search.extract.task import Outcome
from mirage_py.ugraph.field import DivisionByZero

Done = Callable[[Job, Outcome], None]


class Runner(Protocol):
    """Runs jobs until all are done, or until ``stop`` says so or ``deadline`` has passed."""

    def __call__(
        self,
        setting: Setting,
        jobs: Sequence[Job],
        *,
        stop: Stop,
        deadline: float | None,
        done: Done,
    ) -> None: ...


def run_here(
    setting: Setting, jobs: Sequence[Job], *, stop: Stop, deadline: float | None, done: Done
) -> None:
    """Run the jobs in this process, in their order."""
    del deadline  # ``stop`` knows it
    for job in jobs:
        if stop():
            return
        outcome = run_safely(setting, job, stop)
        done(job, outcome)
        if outcome.stopped:
            return


def run_safely(setting: Setting, job: Job, stop: Stop) -> Outcome:
    """The outcome of a job; where it cannot be run at all, the reason and no families."""
    try:
        return run(setting, job, stop)
    except (MirageError, DivisionByZero) as error:
        outcome, code = Outcome(), Code.DIVIDES_BY_ZERO
        if isinstance(error, MirageError):
            code = error.code
        outcome.give_up(reason(code, error))
        return outcome
