"""One worker process for each GPU; workloads are handed out one by one, the longest first.

A row that crashes, hangs or fails costs only itself: its worker is replaced, the row is tried once
more, on whichever GPU is free, and then given up with its reason.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply, Task

_PREPARE_S = 240.0
_ATTEMPTS = 2
# A worker holds torch and the inputs of large programs; only a runaway comes near this.
_MEMORY_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Job:
    """A row to measure: ``task`` goes to the worker as it is."""

    key: str
    task: Task


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: ``value`` is the worker's answer, or ``reason`` says why none."""

    job: Job
    gpu: str
    attempt: int
    seconds: float
    value: Any = None
    reason: str = ""


@dataclass(slots=True)
class _Worker:
    gpu: str
    pool: WorkerPool
    folder: Path
    ready: bool = False
    busy: tuple[Job, int] | None = None


@dataclass(slots=True)
class Farm:
    """``gpus`` are values of CUDA_VISIBLE_DEVICES. ``service`` of a worker is asked first, its
    answer goes to ``on_ready``; raises nothing for a GPU that is of no use, but leaves it out.

    ``row_s`` bounds one row. Use as a context manager.
    """

    gpus: Sequence[str]
    service: str
    row_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    on_ready: Callable[[str, Any], None] = lambda _gpu, _value: None
    on_outcome: Callable[[Outcome], None] = lambda _outcome: None
    faults: list[str] = field(default_factory=list)
    _events: queue.SimpleQueue[tuple[_Worker, Reply]] = field(default_factory=queue.SimpleQueue)
    _workers: list[_Worker] = field(default_factory=list)
    _waiting: deque[tuple[Job, int]] = field(default_factory=deque)
    _folder: Path = field(init=False)

    def __enter__(self) -> Farm:
        self._folder = Path(tempfile.mkdtemp(prefix="mirage_py_bench_"))
        for number, gpu in enumerate(self.gpus):
            folder = self._folder / str(number)
            # Compilers begin with empty caches: what they take is measured too.
            environment = {
                "CUDA_VISIBLE_DEVICES": gpu,
                "TRITON_CACHE_DIR": str(folder / "triton"),
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
                **self.environment,
            }
            folder.mkdir()
            pool = WorkerPool(
                1,
                timeout_s=self.row_s,
                environment=environment,
                memory_bytes=_MEMORY_BYTES,
                imports=(),
            )
            self._workers.append(_Worker(gpu, pool, folder))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.pool.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(
        self,
        jobs: Sequence[Job],
        *,
        skip: Callable[[Job], bool] = lambda _: False,
        deadline: float | None = None,
    ) -> list[Job]:
        """Every job in order, as GPUs become free, but those to ``skip``, which is asked when a GPU
        is ready. Those not finished at ``deadline`` (of time.monotonic) are returned.
        """
        self._waiting = deque((job, 1) for job in jobs)
        for worker in self._workers:
            self._ask(worker, {"service": self.service}, _PREPARE_S)
        preparing = len(self._workers)
        while preparing or any(w.busy for w in self._workers):
            left = None if deadline is None else deadline - time.monotonic()
            try:
                worker, reply = self._events.get(timeout=None if left is None else max(0.0, left))
            except queue.Empty:
                break
            if not worker.ready:
                preparing -= 1
                self._prepared(worker, reply)
            elif worker.busy is not None:
                outcome = self._finished(worker, reply)
                if outcome.value is None and outcome.attempt < _ATTEMPTS:
                    self._waiting.append((outcome.job, outcome.attempt + 1))
                else:
                    self.on_outcome(outcome)
            self._waiting = deque(w for w in self._waiting if not skip(w[0]))
            self._hand_out()
        return self.unfinished()

    def unfinished(self) -> list[Job]:
        """The jobs that were begun and not finished, and those not begun."""
        in_flight = [w.busy[0] for w in self._workers if w.busy]
        return [*in_flight, *(job for job, _ in self._waiting)]

    def _hand_out(self) -> None:
        for worker in self._workers:
            if not self._waiting:
                return
            if worker.ready and worker.busy is None:
                job, attempt = self._waiting.popleft()
                worker.busy = job, attempt
                stage_file = worker.folder / "stage"
                stage_file.unlink(missing_ok=True)
                self._ask(worker, {**job.task, "stage_file": str(stage_file)}, self.row_s)

    def _ask(self, worker: _Worker, task: Task, timeout_s: float) -> None:
        """Ask in a thread; the reply comes as an event."""

        def ask() -> None:
            try:
                (reply,) = worker.pool.map([task], timeout_s=timeout_s)
            except Exception as error:  # noqa: BLE001
                # A worker that does not start: said where the reply is looked at.
                reply = Reply("crash", reason=f"{type(error).__name__}: {error}")
            self._events.put((worker, reply))

        threading.Thread(target=ask, daemon=True).start()

    def _prepared(self, worker: _Worker, reply: Reply) -> None:
        if reply.done:
            worker.ready = True
            self.on_ready(worker.gpu, reply.value)
        else:
            self.faults.append(f"GPU {worker.gpu} is left out: {reply.reason or reply.kind}")

    def _finished(self, worker: _Worker, reply: Reply) -> Outcome:
        assert worker.busy is not None
        (job, attempt), worker.busy = worker.busy, None
        reason = ""
        if not reply.done:
            stage = _stage(worker.folder / "stage")
            reason = (reply.reason or reply.kind) + (f"; the last stage was: {stage}" * bool(stage))
        value = reply.value if reply.done else None
        return Outcome(job, worker.gpu, attempt, reply.seconds, value, reason)


def _stage(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
