"""Worker processes that may crash, hang or run out of memory without harm to the parent.

Each is a fresh interpreter in its own process group, not a fork and not multiprocessing's spawn: a
fork would take CUDA's state along, and spawn would run the user's main script again. A task that
breaks its worker costs only itself: the whole group is killed (with the ptxas it may have started)
and the next task gets a new one.
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


class WorkerPool:
    """``workers`` processes, started when there is work for them.

    ``environment`` is added to the parent's; ``imports`` are paid before the clock of a task runs.
    Use as a context manager, or call ``close``.
    """

    def __init__(
        self,
        workers: int,
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        imports: Sequence[str] = _KERNEL_IMPORTS,
    ) -> None:
        self.timeout_s = timeout_s
        extra = dict(environment or {})
        self._workers = [_Worker(extra, memory_bytes, imports) for _ in range(max(1, workers))]

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

        def serve(worker: _Worker) -> None:
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
                        reply = worker.ask(tasks[number], timeout_s or self.timeout_s)
                    with one_at_a_time:
                        replies[number] = reply
                        on_reply(number, reply)
                except Exception as error:  # noqa: BLE001
                    # Carried to the caller's thread, where it is raised again.
                    failures.append(error)

        busy = self._workers[: len(tasks)]
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

    def close(self) -> None:
        """Stop every worker; a later ``map`` starts them again."""
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
        return "the time budget was used up"
    return "it was interrupted before this began" if stop() else ""


class _Worker:
    """One process and the way to talk to it."""

    def __init__(
        self, environment: Mapping[str, str], memory_bytes: int, imports: Sequence[str]
    ) -> None:
        self._environment = environment
        self._memory_bytes = memory_bytes
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._pending = b""

    def ask(self, task: Task, timeout_s: float) -> Reply:
        """Send one task and wait for the answer; a worker that gives none is replaced."""
        process = self._process or self._start()
        assert self._errors is not None
        self._errors.seek(0)
        self._errors.truncate()
        start = time.monotonic()
        try:
            answer = self._exchange(process, task, timeout_s)
        except TimeoutError:
            self.kill()
            reason = f"it took longer than {timeout_s:g} s and was stopped"
            return Reply("timeout", reason=reason, seconds=time.monotonic() - start)
        except OSError:
            reason = self._death()
            self.kill()
            return Reply("crash", reason=reason, seconds=time.monotonic() - start)
        seconds = time.monotonic() - start
        if answer.get("spoiled"):
            self.kill()
        if "error" in answer:
            return Reply("error", reason=str(answer["error"]), seconds=seconds)
        return Reply("done", answer["value"], seconds=seconds)

    def kill(self) -> None:
        """End the process and everything it started."""
        process, self._process = self._process, None
        self._pending = b""
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        arguments = [str(self._memory_bytes), json.dumps(sys.path), json.dumps([*self._imports])]
        command = [sys.executable, "-c", _BOOT, *arguments]
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self._environment},
            start_new_session=True,
            bufsize=0,
        )
        try:
            self._receive(process, START_TIMEOUT_S)
        except OSError:
            reason = self._death()
            self.kill()
            raise CompileError(
                "a worker process does not start",
                why=reason,
                repair="run `mirage-py doctor` to see whether torch and triton can be imported",
            ) from None
        return process

    def _exchange(
        self, process: subprocess.Popen[bytes], task: Task, timeout_s: float
    ) -> dict[str, Any]:
        assert process.stdin is not None
        line = memoryview(json.dumps(task).encode() + b"\n")
        while line:
            line = line[os.write(process.stdin.fileno(), line) :]
        return self._receive(process, timeout_s)

    def _receive(self, process: subprocess.Popen[bytes], timeout_s: float) -> dict[str, Any]:
        """The next line. Raises TimeoutError, or ConnectionError when the process has ended."""
        assert process.stdout is not None
        end = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise ConnectionError
            self._pending += chunk
        line, self._pending = self._pending.split(b"\n", 1)
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def _death(self) -> str:
        """How the process ended, and its last words."""
        process = self._process
        if process is None or self._errors is None:
            return "its worker process was stopped"
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "its worker process went silent"
        if code < 0:
            how = f"its worker process was ended by {signal.Signals(-code).name}"
        else:
            how = f"its worker process ended with code {code}"
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _STDERR_TAIL_BYTES))
        words = self._errors.read().decode(errors="replace").strip()
        return f"{how}: {words}" if words else how
