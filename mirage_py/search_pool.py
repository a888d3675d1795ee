"""A search spread over processes: chunks of jobs of one variant, so that little is done twice.

Whoever is free takes the next chunk; the largest variants are cut into more of them. Results are
the same as in one process.
"""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mirage_py.runtime.worker_pool import Reply, WorkerPool
from mirage_py.search.jobs import Job, Setting, Stop
from mirage_py.search.outcome_json import (
    job_from_json,
    job_to_json,
    outcome_from_json,
    outcome_to_json,
    setting_from_json,
    setting_to_json,
)
from mirage_py.search.runners import Done, run_here, run_safely

_FOREVER_S = 1e6
_WATCH_S = 0.1
_MEMORY_BYTES = 2 << 30


class SearchPool:
    """A runner (mirage_py.search.runners) of ``processes`` processes.

    The first ``patience_s`` seconds are spent here: most searches are over before a process has
    started. What a process that died did not do is done here too.
    """

    def __init__(self, processes: int, *, patience_s: float = 0.0) -> None:
        self.processes = processes
        self.patience_s = patience_s
        self._pool = WorkerPool(
            processes, timeout_s=_FOREVER_S, memory_bytes=_MEMORY_BYTES, imports=()
        )

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
        finished: dict[Job, None] = {}
        for job in jobs:
            if self.processes > 1 and time.monotonic() - begun >= self.patience_s:
                break
            outcome = run_safely(setting, job, stop)
            finished[job] = None
            done(job, outcome)
            if outcome.stopped:
                return
        left = [job for job in jobs if job not in finished]
        if len(left) > 1:
            self._spread(setting, left, finished, stop=stop, deadline=deadline, done=done)
        left = [job for job in left if job not in finished]
        if left and not stop():
            run_here(setting, left, stop=stop, deadline=deadline, done=done)

    def _spread(
        self,
        setting: Setting,
        jobs: Sequence[Job],
        finished: dict[Job, None],
        *,
        stop: Stop,
        deadline: float | None,
        done: Done,
    ) -> None:
        chunks = _chunks(jobs, self.processes)
        # An e-graph that is garbage must be freed by the thread that made it: now, not below.
        gc.collect()

        def on_reply(_number: int, reply: Reply) -> None:
            for item in reply.value if reply.done else ():
                job = job_from_json(item["job"])
                finished[job] = None
                done(job, outcome_from_json(item["outcome"], str(job), validated=True))

        with _StopFile(stop) as stop_file:
            tasks = [_task(setting, chunk, deadline, stop_file.path) for chunk in chunks]
            self._pool.map(tasks, on_reply=on_reply, deadline=deadline)

    def close(self) -> None:
        """Stop the processes."""
        self._pool.close()


def run_jobs(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inside of a process: the outcomes of a chunk, up to the deadline."""
    setting = setting_from_json(task["setting"])
    deadline = task["deadline"]

    def stop() -> bool:
        if Path(task["stop_file"]).exists():
            return True
        return deadline is not None and time.monotonic() >= deadline

    done = []
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
        self._folder = tempfile.TemporaryDirectory(prefix="mirage_py_search_")
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
        "service": "mirage_py.search_pool:run_jobs",
        "stop_file": str(stop_file),
        "setting": setting_to_json(setting),
        "jobs": [job_to_json(job) for job in jobs],
        "deadline": deadline,
    }


def _chunks(jobs: Sequence[Job], processes: int) -> list[list[Job]]:
    """Jobs of one ring and variant each, the largest first.

    A variant is cut only where it is more than one process's share: its class table and first
    kernels are made again for each piece.
    """
    groups: dict[tuple[str, str | None], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.ring, job.split), []).append(job)
    most = max(1, -(-len(jobs) // processes))
    chunks = []
    for group in groups.values():
        pieces = -(-len(group) // most)
        chunks += [group[n::pieces] for n in range(pieces)]
    return sorted(chunks, key=len, reverse=True)
