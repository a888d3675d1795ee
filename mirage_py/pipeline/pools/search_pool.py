"""A search spread over an executor: chunks of jobs of one variant, so that little is done twice.

Whoever is free takes the next chunk; the largest variants are cut into more of them. Results are
the same as in one process.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from mirage_py.collector import never_collecting, rarely_collecting
from mirage_py.runtime.base import stages
from mirage_py.runtime.process.executor import Executor, reply_of
from mirage_py.runtime.process.warm_workers import WARM
from mirage_py.runtime.process.worker_process import Reply
from mirage_py.search.enumerate.jobs import Job, Setting, Stop
from mirage_py.search.enumerate.outcome_json import (
    job_from_json,
    job_to_json,
    outcome_from_json,
    outcome_to_json,
    setting_from_json,
    setting_to_json,
)
from mirage_py.search.enumerate.runners import Done, run_here, run_safely
from mirage_py.search.extract.task import Outcome

_WATCH_S = 0.1
# A chunk may be so many times what each process would have of equal parts.
_SHARE = 1.25


class SearchPool:
    """A runner (mirage_py.search.enumerate.runners) on ``processes`` places of an executor besides
    this process.

    The first ``patience_s`` seconds are spent here: most searches are over before a process has
    started. What a worker that died did not do is done here too.
    """

    def __init__(self, executor: Executor, processes: int, *, patience_s: float = 0.0) -> None:
        self._executor = executor
        self._processes = min(processes, executor.places)
        self._patience_s = patience_s

    def __call__(
        self,
        setting: Setting,
        jobs: Sequence[Job],
        *,
        stop: Stop,
        deadline: float | None,
        done: Done,
    ) -> None:
        """Run the jobs."""
        begun = time.monotonic()
        left = deque(jobs)
        while left and not (self._processes and time.monotonic() - begun >= self._patience_s):
            if stop():
                return
            job = left.popleft()
            outcome = run_safely(setting, job, stop)
            done(job, outcome)
            if outcome.stopped:
                return
        if len(left) > 1:
            key = self._executor.places if self._executor.is_here else None
            # Those that compile next have started, and do nothing yet.
            with never_collecting(), WARM.lent(key) as kept:
                spread = _Spread(kept or self._executor, setting, stop, deadline, done)
                spread.run(_chunks(left, self._processes + 1), self._processes)
            left = deque(job for job in left if job not in spread.finished)
        if left and not stop():
            run_here(setting, left, stop=stop, deadline=deadline, done=done)


class _Spread:
    """Chunks of jobs that this process and an executor take in turn."""

    def __init__(
        self, executor: Executor, setting: Setting, stop: Stop, deadline: float | None, done: Done
    ) -> None:
        self.executor = executor
        self.setting = setting
        self.stop = stop
        self.deadline = deadline
        self.done = done
        self.finished: dict[Job, None] = {}
        self._chunks: deque[list[Job]] = deque()
        self._asked: deque[None] = deque()
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()

    def run(self, chunks: Sequence[list[Job]], places: int) -> None:
        """Until all is done or stopped; what a worker that died has taken is left."""
        self._chunks.extend(chunks)
        # The largest chunk is done here: the workers have to start first.
        own = self._take()
        try:
            for _ in range(places):
                self._ask()
            while own and self._run_here(own):
                own = self._take()
            while self._asked:
                self._take_reply(_WATCH_S)
                if self.stop():
                    self._end()
        except BaseException:
            self._chunks.clear()
            self.executor.close()
            raise

    def _take(self) -> list[Job]:
        late = self.deadline is not None and time.monotonic() >= self.deadline
        try:
            return [] if late else self._chunks.popleft()
        except IndexError:
            return []

    def _ask(self) -> None:
        """Hand out the next chunk; as soon as it is done, in whatever thread, the one after it."""
        if chunk := self._take():
            self._asked.append(None)
            self.executor.submit(_task(self.setting, chunk, self.deadline)).add_done_callback(
                self._answered
            )

    def _answered(self, future: Future[Reply]) -> None:
        if future.exception() is None:  # or no worker starts
            self._ask()
        self._replies.put(reply_of(future))

    def _run_here(self, chunk: Sequence[Job]) -> bool:
        """Whether there is time for more."""
        for job in chunk:
            outcome = run_safely(self.setting, job, self.stop)
            self._finish(job, outcome)
            while not self._replies.empty():
                self._take_reply(0.0)
            if outcome.stopped:
                self._end()
                return False
        return True

    def _end(self) -> None:
        self._chunks.clear()
        self.executor.interrupt()

    def _take_reply(self, seconds: float) -> None:
        try:
            reply = self._replies.get(timeout=seconds)
        except queue.Empty:
            return
        self._asked.pop()
        for item in reply.value if reply.done else ():
            job = job_from_json(item["job"])
            outcome = outcome_from_json(item["outcome"], str(job), validated=True)
            self._finish(job, outcome)

    def _finish(self, job: Job, outcome: Outcome) -> None:
        self.finished[job] = None
        self.done(job, outcome)


def run_jobs(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inside of a worker: the outcomes of a chunk, up to the deadline."""
    setting = setting_from_json(task["setting"])
    until = task["until"]

    def stop() -> bool:
        return stages.interrupted() or (until is not None and time.time() >= until)

    done = []
    with rarely_collecting():
        for item in task["jobs"]:
            job = job_from_json(item)
            outcome = run_safely(setting, job, stop)
            done.append({"job": item, "outcome": outcome_to_json(outcome)})
            if outcome.stopped:
                break
    return done


def _task(setting: Setting, jobs: Sequence[Job], deadline: float | None) -> dict[str, Any]:
    # The clock of the day, which machines share.
    until = None if deadline is None else time.time() + deadline - time.monotonic()
    return {
        "service": "mirage_py.pipeline.pools.search_pool:run_jobs",
        "setting": setting_to_json(setting),
        "jobs": [job_to_json(job) for job in jobs],
        "until": until,
    }


def _chunks(jobs: Sequence[Job], processes: int) -> list[list[Job]]:
    """Jobs of one ring and variant each, the largest first.

    A variant is cut only where it is clearly more than one process's share: its class table and
    first kernels are made again for each piece.
    """
    groups: dict[tuple[str, str | None], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.ring, job.split), []).append(job)
    most = max(1, int(_SHARE * len(jobs) / processes))
    chunks = []
    for group in groups.values():
        pieces = -(-len(group) // most)
        chunks += [group[n::pieces] for n in range(pieces)]
    return sorted(chunks, key=len, reverse=True)
