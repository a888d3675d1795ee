"""The local executor: worker processes (``worker_process.py``), any of which a task may crash."""

from __future__ import annotations

import contextlib
import threading

from mirage_py.errors import CompileError
from mirage_py.runtime.process.executor import Executor, WorkerKind
from mirage_py.runtime.process.worker_process import Reply, Task, WorkerProcess


class WorkerPool(Executor):
    """``workers`` processes of a kind, started when there is work for them.

    With a ``standby`` task one more process is kept waiting that has done that task, and takes the
    place of the next one that breaks.
    """

    def __init__(self, workers: int, kind: WorkerKind, *, standby: Task | None = None) -> None:
        super().__init__(max(1, workers), kind.timeout_s)
        self._workers = [_process(kind) for _ in range(self.places)]
        self._standby: Standby | None = None
        if standby is not None:
            self._standby = Standby(_process(kind), standby, kind.timeout_s)

    def ask(self, place: int, task: Task, timeout_s: float) -> Reply:
        """The answer of one worker, which is replaced if that broke it."""
        worker = self._workers[place]
        if self._standby is not None:
            self._standby.open()
        reply = worker.ask(task, timeout_s)
        if self._standby is not None and not worker.is_running:
            self._workers[place] = self._standby.instead_of(worker)
        elif self._standby is not None:
            # Not earlier: of two that start at once both are late.
            self._standby.begin()
        return reply

    def interrupt(self) -> None:
        for worker in self._workers:
            worker.interrupt()

    def break_off(self) -> None:
        # What runs ahead is stopped, too, which must not be the answer to a later request.
        self.end_ahead()
        for worker in self._workers:
            worker.break_off()

    def close(self) -> None:
        self._start_no_more()
        self.end_ahead()
        if self._standby is not None:
            self._standby.close()
        for worker in self._workers:
            worker.kill()


def _process(kind: WorkerKind) -> WorkerProcess:
    return WorkerProcess(kind.environment, kind.memory_bytes, kind.imports)


class Standby:
    """A worker that has started and done ``task``, and waits for another one to break."""

    def __init__(self, worker: WorkerProcess, task: Task, timeout_s: float) -> None:
        self._worker = worker
        self._task = task
        self._timeout_s = timeout_s
        self._thread: threading.Thread | None = None
        self._one_at_a_time = threading.Lock()
        self._closed = False

    def open(self) -> None:
        """There is work again, after ``close``."""
        self._closed = False

    def begin(self) -> None:
        """Have it ready soon, unless it is or will be, or was closed meanwhile."""
        if self._thread is not None:
            return
        with self._one_at_a_time:
            if not self._closed and self._thread is None:
                self._prepare()

    def instead_of(self, broken: WorkerProcess) -> WorkerProcess:
        """The worker that waited, as soon as it is ready; ``broken`` is made the next to wait."""
        with self._one_at_a_time:
            if self._closed:
                return broken
            if self._thread is not None:
                self._thread.join()
            if self._closed:
                return broken
            if not self._worker.is_running:
                self._worker.kill()  # or its death would count against the next task
            taken, self._worker = self._worker, broken
            self._prepare()
            return taken

    def close(self) -> None:
        """Stop it."""
        self._closed = True
        # It may be just about to start.
        while (thread := self._thread) is not None and thread.is_alive():
            self._worker.kill()
            thread.join(timeout=0.1)
        with self._one_at_a_time:
            self._worker.kill()
            self._thread = None

    def _prepare(self) -> None:
        self._thread = threading.Thread(target=self._run, args=(self._worker,), daemon=True)
        self._thread.start()

    def _run(self, worker: WorkerProcess) -> None:
        if not worker.is_running:
            worker.kill()
        # One that does not start says so again when it is asked.
        with contextlib.suppress(CompileError):
            worker.ask(self._task, self._timeout_s)
