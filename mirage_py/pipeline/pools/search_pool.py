"""A search spread over processes: chunks of jobs of one variant, so that little is done twice.

Whoever is free takes the next chunk; the largest variants are cut into more of them. Results are
the same as in one process.
"""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mirage_py.errors import MirageError
from mirage_py.runtime.base.private_folder import scratch_folder
from mirage_py.runtime.process.worker_pool import WorkerPool
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
from mirage_py.search.space.collector import never_collecting, rarely_collecting

_FOREVER_S = 1e6
_WATCH_S = 0.1
_MEMORY_BYTES = 2 << 30
# A chunk may be so many times what each process would have of equal parts.
_SHARE = 1.25


class SearchPool:
    """A runner (mirage_py.search.enumerate.runners) of ``processes`` processes, of which this is
    one.

    The first ``patience_s`` seconds are spent here: most searches are over before a process has
    started. What a process that died did not do is done here too.
    """

    def __init__(self, processes: int, *, patience_s: float = 0.0) -> None:
        self.patience_s = patience_s
        self._pools = [
            WorkerPool(1, timeout_s=_FOREVER_S, memory_bytes=_MEMORY_BYTES, imports=())
            for _ in range(processes - 1)
        ]

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
        while left and not (self._pools and time.monotonic() - begun >= self.patience_s):
            job = left.popleft()
            outcome = run_safely(setting, job, stop)
            done(job, outcome)
            if outcome.stopped:
                return
        if len(left) > 1:
            with _StopFile(stop) as stop_file, never_collecting():
                spread = _Spread(setting, left, stop, deadline, stop_file.path, done)
                spread.run(self._pools)
            left = deque(job for job in left if job not in spread.finished)
        if left and not stop():
            run_here(setting, left, stop=stop, deadline=deadline, done=done)

    def close(self) -> None:
        """Stop the processes."""
        for pool in self._pools:
            pool.close()


class _Spread:
    """Chunks of jobs that this process and others take in turn.

    A thread waits for each of the others, and leaves what it answers to the thread of the search.
    """

    def __init__(
        self,
        setting: Setting,
        jobs: Sequence[Job],
        stop: Stop,
        deadline: float | None,
        stop_file: Path,
        done: Done,
    ) -> None:
        self.setting = setting
        self.jobs = jobs
        self.stop = stop
        self.deadline = deadline
        self.stop_file = stop_file
        self.done = done
        self.finished: dict[Job, None] = {}
        self._chunks: deque[list[Job]] = deque()
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()

    def run(self, pools: Sequence[WorkerPool]) -> None:
        """Until all is done or stopped; what a process that died has taken is left."""
        self._chunks.extend(_chunks(self.jobs, len(pools) + 1))
        waiting = [threading.Thread(target=self._serve, args=(p,), daemon=True) for p in pools]
        try:
            # The largest chunk is done here: the others have to start first.
            own = self._take()
            for thread in waiting:
                thread.start()
            while own and self._run_here(own):
                own = self._take()
        except BaseException:
            self._chunks.clear()
            for pool in pools:
                pool.close()
            raise
        for thread in waiting:
            while thread.is_alive():
                thread.join(_WATCH_S)
                self._take_replies()
        self._take_replies()

    def _take(self) -> list[Job]:
        try:
            return self._chunks.popleft()
        except IndexError:
            return []

    def _run_here(self, chunk: Sequence[Job]) -> bool:
        """Whether there is time for more."""
        for job in chunk:
            outcome = run_safely(self.setting, job, self.stop)
            self._finish(job, outcome)
            self._take_replies()
            if outcome.stopped:
                self._chunks.clear()
                return False
        return True

    def _serve(self, pool: WorkerPool) -> None:
        while chunk := self._take():
            task = _task(self.setting, chunk, self.deadline, self.stop_file)
            try:
                (reply,) = pool.map([task], deadline=self.deadline)
            except MirageError:
                return  # it does not start, and is not needed
            self._replies.put(reply)

    def _take_replies(self) -> None:
        while not self._replies.empty():
            reply = self._replies.get()
            for item in reply.value if reply.done else ():
                job = job_from_json(item["job"])
                outcome = outcome_from_json(item["outcome"], str(job), validated=True)
                self._finish(job, outcome)

    def _finish(self, job: Job, outcome: Outcome) -> None:
        self.finished[job] = None
        self.done(job, outcome)


def run_jobs(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inside of a process: the outcomes of a chunk, up to the deadline."""
    setting = setting_from_json(task["setting"])
    deadline = task["deadline"]

    def stop() -> bool:
        if Path(task["stop_file"]).exists():
            return True
        return deadline is not None and time.monotonic() >= deadline

    done = []
    with rarely_collecting():
        for item in task["jobs"]:
            job = job_from_json(item)
            outcome = run_safely(setting, job, stop)
            done.append({"job": item, "outcome": outcome_to_json(outcome)})
            if outcome.stopped:
                break
    return done


class _StopFile:
    """A file that appears when ``stop`` says so: processes that are at work look for it."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._folder = tempfile.TemporaryDirectory(dir=scratch_folder())
        self.path = Path(self._folder.name) / "stop"
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(_WATCH_S):
            if self._stop():
                self.path.touch()
                return

    def __enter__(self) -> _StopFile:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()
        self._folder.cleanup()


def _task(
    setting: Setting, jobs: Sequence[Job], deadline: float | None, stop_file: Path
) -> dict[str, Any]:
    return {
        "service": "mirage_py.pipeline.pools.search_pool:run_jobs",
        "stop_file": str(stop_file),
        "setting": setting_to_json(setting),
        "jobs": [job_to_json(job) for job in jobs],
        "deadline": deadline,
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
