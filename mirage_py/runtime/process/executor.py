"""An executor: a number of places, at each of which one task is done at a time.

Searches, field tests, compilers, numerical checks and rows of benchmarks are tasks: a service's
name and what it needs, as JSON. Where places are (worker processes of this machine, or of others)
is nothing to them. What ``submit`` gives is a future of ``concurrent.futures``, so that ``cancel``
and ``as_completed`` are Python's own.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from itertools import islice

from mirage_py.errors import CompileError
from mirage_py.runtime.process.worker_process import Reply, Task

DEFAULT_MEMORY_BYTES = 8 << 30
# What emitted sources import.
_KERNEL_IMPORTS = ("torch", "triton")
# Why what was not begun was not.
OUT_OF_TIME = "the time budget was used up"
INTERRUPTED = "it was interrupted before this began"
_FOREVER_S = 1e6
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """What a worker process is made for: ``environment`` is added to the parent's, ``imports`` are
    paid before the clock of its first task runs, and a machine that has none of the ``resource``
    does not run it.
    """

    resource: str = "CPU"
    timeout_s: float = _FOREVER_S
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    imports: tuple[str, ...] = _KERNEL_IMPORTS
    environment: Mapping[str, str] = field(default_factory=dict)


SEARCH = WorkerKind(memory_bytes=4 << 30, imports=())
# Compiling needs no GPU: no worker may take memory on one.
COMPILE = WorkerKind(
    imports=("triton",), environment={"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
)
# A worker holds torch and the inputs of large programs; only a runaway comes near this.
MEASURE = WorkerKind(resource="GPU", memory_bytes=1 << 40, imports=())


class Executor(ABC):
    """``places`` tasks run at once; a task that breaks its worker costs only itself.

    Use as a context manager, or call ``close``.
    """

    # Whether its places are cores of this machine.
    is_here = True

    def __init__(self, places: int, timeout_s: float) -> None:
        self.places = places
        self.timeout_s = timeout_s
        # The place that was used last knows most.
        self._free: queue.LifoQueue[int] = queue.LifoQueue()
        for place in reversed(range(places)):
            self._free.put(place)
        # Places that ``start`` has taken and not begun with.
        self._to_start: deque[int] = deque()
        # By task, what ``submit_ahead`` has begun and nobody has asked for.
        self._ahead: dict[str, Future[Reply]] = {}

    @abstractmethod
    def ask(self, place: int, task: Task, timeout_s: float) -> Reply:
        """The answer from one place; what went wrong there is a reply, too."""

    @abstractmethod
    def interrupt(self) -> None:
        """Tell what runs to end soon, with what it has (``stages.interrupted``)."""

    @abstractmethod
    def break_off(self) -> None:
        """Stop what runs and leave the other places as they are."""

    @abstractmethod
    def close(self) -> None:
        """Stop what runs; a later task starts it again."""

    def submit(self, task: Task, timeout_s: float | None = None) -> Future[Reply]:
        """Have a task done as soon as a place is free.

        It can be cancelled until then. Its exception is a CompileError where no worker starts.
        """
        known = self._ahead.pop(_key(task), None) if self._ahead else None
        return known or self._submitted(task, timeout_s)

    def submit_ahead(self, task: Task, timeout_s: float | None = None) -> None:
        """Have a task done that ``submit`` is likely to be asked for, which then gives the same."""
        key = _key(task)
        if key not in self._ahead:
            self._ahead[key] = self._submitted(task, timeout_s)

    @property
    def ahead(self) -> int:
        """How many of these are not done yet."""
        return sum(not future.done() for future in [*self._ahead.values()])

    def end_ahead(self) -> None:
        """Begin nothing any more that nobody has asked for."""
        with contextlib.suppress(KeyError):
            while True:
                self._ahead.popitem()[1].cancel()

    def _submitted(self, task: Task, timeout_s: float | None) -> Future[Reply]:
        future: Future[Reply] = Future()

        def serve() -> None:
            place = self._place()
            if not future.set_running_or_notify_cancel():
                self._free.put(place)
                return
            try:
                reply = self.ask(place, task, timeout_s or self.timeout_s)
            except BaseException as error:  # noqa: BLE001
                # Carried to the thread that asks for the result.
                self._free.put(place)
                future.set_exception(error)
            else:
                self._free.put(place)
                future.set_result(reply)

        threading.Thread(target=serve, daemon=True).start()
        return future

    def start(self, task: Task, at_once: int) -> None:
        """Start the workers of a new pool with a task, so many at a time: sixteen processes that
        start together keep a machine busy for seconds, and what runs beside them waits. Where other
        tasks come before that, the rest start with those.
        """
        with contextlib.suppress(queue.Empty):
            while True:
                self._to_start.append(self._free.get_nowait())
        for _ in range(min(at_once, len(self._to_start))):
            threading.Thread(target=self._start_next, args=(task,), daemon=True).start()

    def _place(self) -> int:
        try:
            return self._free.get_nowait()
        except queue.Empty:
            try:
                return self._to_start.popleft()
            except IndexError:
                return self._free.get()

    def _start_next(self, task: Task) -> None:
        while True:
            try:
                place = self._to_start.popleft()
            except IndexError:
                return
            # One that does not start is told of by the first task that needs it.
            with contextlib.suppress(CompileError):
                self.ask(place, task, self.timeout_s)
            self._free.put(place)

    def _start_no_more(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._free.put(self._to_start.popleft())

    def cancel(self, futures: Iterable[Future[Reply]]) -> None:
        """Begin none of these any more, and stop all workers of those that run."""
        futures = tuple(futures)
        for future in futures:
            future.cancel()
        # A worker may be just about to start: they are stopped until nobody asks them any more.
        self.close()
        while wait(futures, timeout=_LOOK_S).not_done:
            self.close()

    def map(
        self,
        tasks: Iterable[Task],
        *,
        on_reply: Callable[[int, Reply], None] = lambda _number, _reply: None,
        deadline: float | None = None,
        stop: Callable[[], bool] = lambda: False,
        is_over: Callable[[], bool] | None = None,
        timeout_s: float | None = None,
    ) -> list[Reply]:
        """Every task's reply, in the order of the tasks. Each is taken when a place is free for it,
        so that what is made as it is asked for is made beside those that run.

        ``on_reply(number, reply)`` is called as they come. Tasks that have not begun at
        ``deadline`` (of ``time.monotonic``), or when ``stop`` says so, are skipped; when it
        ``is_over``, which is asked now and then, what runs is broken off and skipped, too, and no
        further task is taken. ``timeout_s`` replaces the executor's. Raises CompileError when
        workers cannot start at all. KeyboardInterrupt stops the workers.
        """
        replies: dict[int, Reply] = {}
        running: dict[Future[Reply], int] = {}
        waiting = enumerate(tasks)

        def take(number: int, reply: Reply) -> None:
            replies[number] = reply
            on_reply(number, reply)

        try:
            while True:
                for number, task in islice(waiting, max(0, self.places - len(running))):
                    if why := _why_not(deadline, stop):
                        for left, _ in ((number, task), *waiting):
                            take(left, Reply("skipped", reason=why))
                    else:
                        running[self.submit(task, timeout_s)] = number
                if not running:
                    break
                look_s = None if is_over is None else _LOOK_S
                for future in wait(running, look_s, FIRST_COMPLETED).done:
                    take(running.pop(future), future.result())
                if is_over is not None and running and is_over():
                    self._break_off(running)
                    for number in running.values():
                        take(number, Reply("skipped", reason=OUT_OF_TIME))
                    break
        except BaseException:
            self.cancel(running)
            raise
        return [replies[number] for number in sorted(replies)]

    def _break_off(self, futures: Iterable[Future[Reply]]) -> None:
        for future in futures:
            future.cancel()
        self.break_off()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def settled(
    futures: Sequence[Future[Reply]], deadline: float | None, stop: Callable[[], bool]
) -> list[Reply]:
    """The replies of tasks of which none begins after ``deadline`` (of ``time.monotonic``), or when
    ``stop`` says so.
    """
    left, why = set(futures), ""
    while left:
        if why := _why_not(deadline, stop):
            for future in left:
                future.cancel()
        left = wait(left, _LOOK_S, FIRST_COMPLETED).not_done
    return [Reply("skipped", reason=why) if f.cancelled() else f.result() for f in futures]


def reply_of(future: Future[Reply]) -> Reply:
    """The reply of a future that is done; a worker that does not start is a crash."""
    error = future.exception()
    return Reply("crash", reason=f"{type(error).__name__}: {error}") if error else future.result()


def _key(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def _why_not(deadline: float | None, stop: Callable[[], bool]) -> str:
    """Why a task is not begun any more; empty where it may be."""
    if deadline is not None and time.monotonic() > deadline:
        return OUT_OF_TIME
    return INTERRUPTED if stop() else ""
