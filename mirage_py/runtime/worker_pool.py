"""Worker processes that may crash, hang or run out of memory without harm to the parent.

Each is a fresh interpreter in its own process group, not a fork and not multiprocessing's spawn: a
fork would take CUDA's state along, and spawn would run the user's main script again. A task that
breaks its worker costs only itself: the whole group is killed (with the ptxas it may have started)
and the next task gets a new one. Beside each worker a shell waits that kills the group when the
parent is gone, also one that was killed and could not say so: a compiler that hangs inside native
code would not notice.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

from mirage_py.errors import CompileError

Task = Mapping[str, Any]

DEFAULT_MEMORY_BYTES = 8 << 30
START_TIMEOUT_S = 120.0
# What emitted sources import.
_KERNEL_IMPORTS = ("torch", "triton")
_STDERR_TAIL_BYTES = 600
# What a task may print, and how long its answer may be; the first is far above any compiler's
# dump, the second above any outcome of a search.
_MOST_STDERR_BYTES = 64 << 20
_MOST_ANSWER_BYTES = 256 << 20
# How often a worker is looked at that says nothing.
_LOOK_S = 0.5
# Why what was not begun was not.
OUT_OF_TIME = "the time budget was used up"
INTERRUPTED = "it was interrupted before this began"

# The first line names the process group. A second one comes when the group is gone; if the stream
# ends before, the parent is gone.
_GUARD = 'read group && { read over || kill -s KILL -- "-$group"; }'

_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from mirage_py.runtime.worker import main
main(int(sys.argv[1]), json.loads(sys.argv[3]))
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one task.

    ``kind`` is ``done`` (``value`` holds the answer), ``error`` (the service raised), ``timeout``,
    ``crash`` or ``skipped``; ``reason`` says why in words unless it is done.
    """

    kind: str
    value: Any = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def done(self) -> bool:
        """Whether there is an answer."""
        return self.kind == "done"


class _GarbageError(Exception):
    """A worker said something that is no answer."""


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
        self._workers = [_Worker(extra, memory_bytes, imports) for _ in range(max(1, workers))]
        self._standby: _Standby | None = None
        if standby is not None:
            self._standby = _Standby(_Worker(extra, memory_bytes, imports), standby, timeout_s)

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
        skipped. ``timeout_s``
        replaces the pool's. Raises CompileError when workers cannot start at all. KeyboardInterrupt
        kills the workers.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _why_not(deadline: float | None, stop: Callable[[], bool]) -> str:
    """Why a task is not begun any more; empty where it may be."""
    if deadline is not None and time.monotonic() > deadline:
        return OUT_OF_TIME
    return INTERRUPTED if stop() else ""


class _Worker:
    """One process and the way to talk to it."""

    def __init__(
        self, environment: Mapping[str, str], memory_bytes: int, imports: Sequence[str]
    ) -> None:
        self._environment = environment
        self._memory_bytes = memory_bytes
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._one_at_a_time = threading.Lock()
        self._errors: IO[bytes] | None = None
        self._pending = b""

    @property
    def is_running(self) -> bool:
        """Whether it has a process that takes the next task at once."""
        process = self._process
        return process is not None and process.poll() is None

    def ask(self, task: Task, timeout_s: float) -> Reply:
        """Send one task and wait for the answer; a worker that gives none is replaced."""
        process = self._process or self._start()
        start = time.monotonic()
        try:
            _clear(self._errors)
            answer = self._exchange(process, task, timeout_s)
        except TimeoutError:
            self.kill(process)
            reason = f"it took longer than {timeout_s:g} s and was stopped"
            return Reply("timeout", reason=reason, seconds=time.monotonic() - start)
        except (OSError, ValueError):  # ValueError: somebody else has closed the streams
            reason = self._death(process)
            self.kill(process)
            return Reply("crash", reason=reason, seconds=time.monotonic() - start)
        except _GarbageError as error:
            self.kill(process)
            return Reply("crash", reason=str(error), seconds=time.monotonic() - start)
        seconds = time.monotonic() - start
        if answer.get("spoiled"):
            self.kill(process)
        if "error" in answer:
            return Reply("error", reason=str(answer["error"]), seconds=seconds)
        return Reply("done", answer["value"], seconds=seconds)

    def kill(self, only: subprocess.Popen[bytes] | None = None) -> None:
        """End the process and everything it started.

        ``only`` is the process that somebody found at fault; where it was replaced meanwhile, the
        new one lives on.
        """
        with self._one_at_a_time:
            if only is not None and self._process is not only:
                return
            process, self._process = self._process, None
            guard, self._guard = self._guard, None
            errors, self._errors = self._errors, None
            self._pending = b""
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if guard is not None:
            with contextlib.suppress(OSError):
                guard.communicate(b"\n")
        if errors is not None:
            errors.close()

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            process = self._spawn()
            self._receive(process, time.monotonic() + START_TIMEOUT_S)
        except (OSError, _GarbageError) as error:
            reason = self._death(self._process) if self._process is not None else str(error)
            self.kill()
            raise CompileError(
                "a worker process does not start",
                why=reason,
                repair="run `mirage-py doctor` to see whether torch and triton can be imported",
            ) from None
        return process

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        arguments = [str(self._memory_bytes), json.dumps(sys.path), json.dumps([*self._imports])]
        self._process = process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self._environment},
            start_new_session=True,
            bufsize=0,
        )
        assert process.stdin is not None
        os.set_blocking(_descriptor(process.stdin), False)
        # In a session of its own, so that Ctrl-C does not end it before its time.
        self._guard = guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        assert guard.stdin is not None
        guard.stdin.write(f"{process.pid}\n".encode())
        return process

    def _exchange(
        self, process: subprocess.Popen[bytes], task: Task, timeout_s: float
    ) -> dict[str, Any]:
        """The answer to a task. Raises as ``_receive`` does, and _GarbageError for another one."""
        assert process.stdin is not None
        end = time.monotonic() + timeout_s
        self._asked += 1
        line = memoryview(json.dumps({**task, "number": self._asked}).encode() + b"\n")
        while line:
            if not _ready(process.stdin, select.POLLOUT, end - time.monotonic()):
                raise TimeoutError
            line = line[os.write(_descriptor(process.stdin), line) :]
        answer = self._receive(process, end)
        fits = answer.get("number") == self._asked and ("value" in answer or "error" in answer)
        if not fits or self._pending:
            raise _GarbageError("its worker process gave an answer that is none")
        return answer

    def _receive(self, process: subprocess.Popen[bytes], end: float) -> dict[str, Any]:
        """The next line.

        Raises TimeoutError at ``end``, ConnectionError when the process has ended, and
        _GarbageError for what is no answer.
        """
        assert process.stdout is not None
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if _ready(process.stdout, select.POLLIN, min(left, _LOOK_S)):
                chunk = os.read(_descriptor(process.stdout), 1 << 16)
                if not chunk:
                    raise ConnectionError
                self._pending += chunk
            elif process.poll() is not None:
                raise ConnectionError  # something that it started holds its pipe open
            if len(self._pending) > _MOST_ANSWER_BYTES:
                raise _GarbageError(f"its answer is longer than {_MOST_ANSWER_BYTES} bytes")
            if _size(self._errors) > _MOST_STDERR_BYTES:
                raise _GarbageError(f"it printed more than {_MOST_STDERR_BYTES} bytes")
        line, self._pending = self._pending.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _GarbageError("its worker process gave an answer that is none")
        return answer

    def _death(self, process: subprocess.Popen[bytes]) -> str:
        """How the process ended, and its last words."""
        if self._process is not process:
            return "its worker process was stopped"
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "its worker process went silent"
        if code < 0:
            how = f"its worker process was ended by {signal.Signals(-code).name}"
        else:
            how = f"its worker process ended with code {code}"
        words = _last_words(self._errors)
        return f"{how}: {words}" if words else how


class _Standby:
    """A worker that has started and done ``task``, and waits for another one to break."""

    def __init__(self, worker: _Worker, task: Task, timeout_s: float) -> None:
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

    def instead_of(self, broken: _Worker) -> _Worker:
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

    def _run(self, worker: _Worker) -> None:
        if not worker.is_running:
            worker.kill()
        # One that does not start says so again when it is asked.
        with contextlib.suppress(CompileError):
            worker.ask(self._task, self._timeout_s)


def _ready(stream: IO[bytes], event: int, seconds: float) -> bool:
    """Whether a stream can be read or written (or has ended) within some seconds."""
    poll = select.poll()
    poll.register(_descriptor(stream), event)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def _descriptor(stream: IO[bytes]) -> int:
    """Of a pipe; ConnectionError where another thread has stopped the process and closed it."""
    try:
        return stream.fileno()
    except ValueError:
        raise ConnectionError from None


def _size(file: IO[bytes] | None) -> int:
    return 0 if file is None else os.fstat(file.fileno()).st_size


def _clear(file: IO[bytes] | None) -> None:
    if file is not None:
        file.seek(0)
        file.truncate()


def _last_words(file: IO[bytes] | None) -> str:
    if file is None:
        return ""
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _STDERR_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
    except ValueError:
        return ""  # closed meanwhile
