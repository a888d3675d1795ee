"""One worker process that may crash, hang or run out of memory without harm to the parent.

It is a fresh interpreter in its own process group, not a fork and not multiprocessing's spawn: a
fork would take CUDA's state along, and spawn would run the user's main script again. A task that
breaks it costs only itself: the whole group is killed (with the ptxas it may have started) and the
next task gets a new one. Beside it a shell waits that kills the group when the parent is gone, also
one that was killed and could not say so: a compiler that hangs inside native code would not notice.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from mirage_py.errors import CompileError
from mirage_py.reasons import Code, Reason, reason
from mirage_py.runtime.base.stages import QUEUE

Task = Mapping[str, Any]

_START_TIMEOUT_S = 120.0
_STDERR_TAIL_BYTES = 600
# What a task may print, and how long its answer may be; the first is far above any compiler's
# dump, the second above any outcome of a search.
_MOST_STDERR_BYTES = 64 << 20
_MOST_ANSWER_BYTES = 256 << 20
# Of others that measure on the GPU before it has its turn.
_MOST_QUEUED_S = 3600.0
# How often a worker is looked at that says nothing.
_LOOK_S = 0.5

# The first line names the process group. A second one comes when the group is gone; if the stream
# ends before, the parent is gone.
_GUARD = 'read group && { read over || kill -s KILL -- "-$group"; }'

_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from mirage_py.runtime.worker_main.worker import main
main(int(sys.argv[1]), json.loads(sys.argv[3]))
"""

# Of a task that was not done, by the kind of the reply.
_CODES = {
    "error": Code.FAILED,
    "timeout": Code.TIMED_OUT,
    "crash": Code.CRASHED,
    "skipped": Code.NOT_BEGUN,
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one task.

    ``kind`` is ``done`` (``value`` holds the answer), ``error`` (the service raised), ``timeout``,
    ``crash`` or ``skipped``; ``reason`` says why in words unless it is done. ``stage`` is where it
    ran out of time or died, if it had said so.
    """

    kind: str
    value: Any = None
    reason: str = ""
    seconds: float = 0.0
    code: Code | None = None
    stage: str = ""

    @property
    def why(self) -> Reason:
        """Why there is no answer."""
        return reason(self.code or _CODES[self.kind], self.reason or self.kind)

    @property
    def done(self) -> bool:
        """Whether there is an answer."""
        return self.kind == "done"


class _GarbageError(Exception):
    """A worker said something that is no answer."""


class WorkerProcess:
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
        self._stage = ""
        self._at_work = False

    @property
    def is_running(self) -> bool:
        """Whether it has a process that takes the next task at once."""
        process = self._process
        return process is not None and process.poll() is None

    def ask(self, task: Task, timeout_s: float) -> Reply:
        """Send one task and wait for the answer; a worker that gives none is replaced.

        The time during which it stands in a queue for the GPU does not count.
        """
        process = self._process or self._start()
        start = time.monotonic()
        try:
            _clear(self._errors)
            self._at_work = True
            answer = self._exchange(process, task, timeout_s)
        except TimeoutError:
            self.kill(process)
            reason = f"it took longer than {timeout_s:g} s and was stopped"
            seconds = time.monotonic() - start
            return Reply("timeout", reason=reason, seconds=seconds, stage=self._stage)
        except (OSError, ValueError):  # ValueError: somebody else has closed the streams
            reason, seconds = self._death(process), time.monotonic() - start
            self.kill(process)
            return Reply("crash", reason=reason, seconds=seconds, stage=self._stage)
        except _GarbageError as error:
            self.kill(process)
            return Reply("crash", reason=str(error), seconds=time.monotonic() - start)
        finally:
            self._at_work = False
        seconds = time.monotonic() - start
        if answer.get("spoiled"):
            self.kill(process)
        if "error" in answer:
            code = Code[answer["code"]] if "code" in answer else None
            return Reply("error", None, str(answer["error"]), seconds, code)
        return Reply("done", answer["value"], seconds=seconds)

    def interrupt(self) -> None:
        """Tell a task that is under way to end soon (``stages.interrupted``)."""
        with self._one_at_a_time, contextlib.suppress(ProcessLookupError):
            if self._at_work and self._process is not None:
                self._process.send_signal(signal.SIGUSR1)

    def break_off(self) -> None:
        """End the process if it is at a task; one that waits, or starts, is left alone."""
        process = self._process
        if self._at_work and process is not None:
            self.kill(process)

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
            self._receive(process, time.monotonic() + _START_TIMEOUT_S)
        except (OSError, ValueError, _GarbageError) as error:  # ValueError: as in ``ask``
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
        """The next line but those that name a stage; ``end`` is so much later as it was queued.

        Raises TimeoutError at ``end``, ConnectionError when the process has ended, and
        _GarbageError for what is no answer.
        """
        self._stage = ""
        queued_at = 0.0
        while True:
            answer = self._line(process, end)
            if answer.keys() != {"stage"}:
                return answer
            if self._stage == QUEUE:
                end += time.monotonic() - queued_at - _MOST_QUEUED_S
            self._stage = str(answer["stage"])
            if self._stage == QUEUE:
                queued_at = time.monotonic()
                end += _MOST_QUEUED_S

    def _line(self, process: subprocess.Popen[bytes], end: float) -> dict[str, Any]:
        """The next line. Raises as ``_receive`` does."""
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
