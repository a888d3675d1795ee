"""One worker process for each GPU; workloads are handed out one by one, the longest first.

A row that crashes, hangs or fails costs only itself: its worker is replaced, the row is tried once
more, on whichever GPU is free, and then given up with its reason.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from mirage_py.errors import InputError
from mirage_py.runtime.farm.dask_executor import DaskExecutor, gpus_of
from mirage_py.runtime.process.executor import MEASURE, Executor, reply_of
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply, Task

_PREPARE_S = 240.0
_ATTEMPTS = 2


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


def farm_gpus(scheduler: str, model: str = "") -> tuple[str, ...]:
    """The GPUs of one model of a farm, as MODEL:NAME. Raises InputError where that is not clear."""
    models = gpus_of(scheduler)
    if not model and len(models) > 1:
        raise InputError(
            f"the farm has GPUs of several models: {', '.join(models)}",
            why="rows of two models are no table",
            repair="say which: --gpu-model NAME",
        )
    model = model or next(iter(models), "")
    return tuple(f"{model}:{gpu}" for gpu in models.get(model, ()))


@dataclass(frozen=True, slots=True)
class _Worker:
    gpu: str
    executor: Executor


@dataclass(slots=True)
class Farm:
    """``gpus`` are values of CUDA_VISIBLE_DEVICES. ``service`` of a worker is asked first, its
    answer goes to ``on_ready``; raises nothing for a GPU that is of no use, but leaves it out.

    ``row_s`` bounds one row, which has so many ``attempts``. With a ``scheduler`` the ``gpus`` are
    those of its farm, as ``farm_gpus`` names them. Use as a context manager.
    """

    gpus: Sequence[str]
    service: str
    row_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    on_ready: Callable[[str, Any], None] = lambda _gpu, _value: None
    on_outcome: Callable[[Outcome], None] = lambda _outcome: None
    faults: list[str] = field(default_factory=list)
    scheduler: str = ""
    attempts: int = _ATTEMPTS
    _workers: list[_Worker] = field(default_factory=list)
    _running: dict[Future[Reply], tuple[_Worker, Job | None, int]] = field(default_factory=dict)
    _waiting: deque[tuple[Job, int]] = field(default_factory=deque)
    _folder: Path = field(init=False)

    def __enter__(self) -> Farm:
        self._folder = Path(tempfile.mkdtemp(prefix="mirage_py_bench_"))
        for number, gpu in enumerate(self.gpus):
            if self.scheduler:
                kind = replace(MEASURE, environment=self.environment)
                executor: Executor = DaskExecutor(self.scheduler, kind, gpu=gpu)
                self._workers.append(_Worker(gpu, executor))
                continue
            folder = self._folder / str(number)
            folder.mkdir()
            # Compilers begin with empty caches: what they take is measured too.
            environment = {
                "CUDA_VISIBLE_DEVICES": gpu,
                "TRITON_CACHE_DIR": str(folder / "triton"),
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
                "TMPDIR": str(folder),
                **self.environment,
            }
            executor = WorkerPool(1, replace(MEASURE, environment=environment))
            self._workers.append(_Worker(gpu, executor))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.executor.close()
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
            asked = worker.executor.submit({"service": self.service}, _PREPARE_S)
            self._running[asked] = worker, None, 1
        idle: deque[_Worker] = deque()
        while self._running:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done = wait(self._running, left, FIRST_COMPLETED).done
            if not done:
                break
            for future in done:
                worker, job, attempt = self._running.pop(future)
                if self._taken(worker, job, attempt, reply_of(future)):
                    idle.append(worker)
            self._waiting = deque(w for w in self._waiting if not skip(w[0]))
            while idle and self._waiting:
                worker, (job, attempt) = idle.popleft(), self._waiting.popleft()
                asked = worker.executor.submit(job.task, self.row_s)
                self._running[asked] = worker, job, attempt
        return self.unfinished()

    def unfinished(self) -> list[Job]:
        """The jobs that were begun and not finished, and those not begun."""
        in_flight = [job for _, job, _ in self._running.values() if job is not None]
        return [*in_flight, *(job for job, _ in self._waiting)]

    def _taken(self, worker: _Worker, job: Job | None, attempt: int, reply: Reply) -> bool:
        """Take in a reply: whether its worker is of use."""
        if job is None:
            if reply.done:
                self.on_ready(worker.gpu, reply.value)
            else:
                self.faults.append(f"GPU {worker.gpu} is left out: {reply.reason or reply.kind}")
            return reply.done
        if not reply.done and attempt < self.attempts:
            self._waiting.append((job, attempt + 1))
            return True
        value, reason = (reply.value, "") if reply.done else (None, reply.reason or reply.kind)
        if reason and reply.stage:
            reason += f"; the last stage was: {reply.stage}"
        self.on_outcome(Outcome(job, worker.gpu, attempt, reply.seconds, value, reason))
        return True
