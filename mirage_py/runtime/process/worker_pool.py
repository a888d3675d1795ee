"""A pool of worker processes (``worker_process.py``) for many tasks, any of which may crash its
worker.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from mirage_py.errors import CompileError
from mirage_py.runtime.process.worker_process import Reply, Task, WorkerProcess

DEFAULT_MEMORY_BYTES = 8 << 30
# What emitted sources import.
_KERNEL_IMPORTS = ("torch", "triton")
# Why what was not begun was not.
OUT_OF_TIME = "the time budget was used up"
INTERRUPTED = "it was interrupted before this began"


class WorkerPool:
    """``workers`` processes, started when there is work for them.

    ``environment`` is added to the parent's; ``imports`` are paid before the clock of a task runs.
    With a ``standby`` task one more process is kept waiting that has done that task, and takes the
    place of the next one that breaks. Use as a context manager, or call ``close``.
    """

    def __init__(
        self,
        workers: int,
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        imports: Sequence[str] = _KERNEL_IMPORTS,
        standby: Task | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        extra = dict(environment or {})
        self._workers = [
            WorkerProcess(extra, memory_bytes, imports) for _ in range(max(1, workers))
        ]
        self._standby: Standby | None = None
        if standby is not None:
            self._standby = Standby(WorkerProcess(extra, memory_bytes, imports), standby, timeout_s)

    def map(
        self,
        tasks: Sequence[Task],
        *,
        on_reply: Callable[[int, Reply], None] = lambda _number, _reply: None,
        deadline: float | None = None,
        stop: Callable[[], bool] = lambda: False,
        timeout_s: float | None = None,
    ) -> list[Reply]:
        """Every task's reply, in the order of the tasks.

        ``on_reply(number, reply)`` is called as they come, from other threads, one at a time. Tasks
        that have not begun at ``deadline`` (of ``time.monotonic``), or when ``stop`` says so, are
        skipped. ``timeout_s`` replaces the pool's. Raises CompileError when workers cannot start at
        all. KeyboardInterrupt kills the workers.
        """
        replies: list[Reply | None] = [None] * len(tasks)
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(tasks)):
            waiting.put(number)
        failures: list[Exception] = []
        one_at_a_time = threading.Lock()

        def serve(place: int) -> None:
            while not failures:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    reason = _why_not(deadline, stop)
                    if reason:
                        reply = Reply("skipped", reason=reason)
                    else:
                        reply = self._ask(place, tasks[number], timeout_s or self.timeout_s)
                    with one_at_a_time:
                        replies[number] = reply
                        on_reply(number, reply)
                except Exception as error:  # noqa: BLE001
                    # Carried to the caller's thread, where it is raised again.
                    failures.append(error)

        busy = range(min(len(self._workers), len(tasks)))
        threads = [threading.Thread(target=serve, args=(w,), daemon=True) for w in busy]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            # Ctrl-C: empty the queue before killing, or the threads would start new workers.
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting.get_nowait()
            self.close()
            raise
        if failures:
            self.close()
            raise failures[0]
        return [r for r in replies if r is not None]

    def _ask(self, place: int, task: Task, timeout_s: float) -> Reply:
        """The answer of one worker, which is replaced if that broke it."""
        worker = self._workers[place]
        if self._standby is not None:
            self._standby.begin()
        reply = worker.ask(task, timeout_s)
        if self._standby is not None and not worker.is_running:
            self._workers[place] = self._standby.instead_of(worker)
        return reply

    def close(self) -> None:
        """Stop every worker; a later ``map`` starts them again."""
        if self._standby is not None:
            self._standby.close()
        for worker in self._workers:
            worker.kill()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _why_not(deadline: float | None, stop: Callable[[], bool]) -> str:
    """Why a task is not begun any more; empty where it may be."""
    if deadline is not None and time.monotonic() > deadline:
        return OUT_OF_TIME
    return INTERRUPTED if stop() else ""


class Standby:
    """A worker that has started and done ``task``, and waits for another one to break."""

    def __init__(self, worker: WorkerProcess, task: Task, timeout_s: float) -> None:
        self._worker = worker
        self._task = task
        self._timeout_s = timeout_s
        self._thread: threading.Thread | None = None
        self._one_at_a_time = threading.Lock()
        self._closed = False

    def begin(self) -> None:
        """Have it ready soon, unless it is or will be."""
        if self._thread is not None:
            return
        with self._one_at_a_time:
            self._closed = False
            if self._thread is None:
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
