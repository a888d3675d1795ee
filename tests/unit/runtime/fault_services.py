"""Services of a worker that go wrong, each in another way: what a compiler or a kernel may do."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mirage_py.runtime.base.stages import LAUNCH, QUEUE, interrupted, stage

Task = dict[str, Any]


def works(task: Task) -> int:
    return os.getpid()


def note(task: Task) -> None:
    """Say in a file that this process was here."""
    with Path(task["file"]).open("a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def meet(task: Task) -> dict[str, tuple[float, float]]:
    """Wait for another process that does the same in a folder."""
    folder = Path(task["folder"])
    (folder / str(os.getpid())).touch()
    end = time.monotonic() + 300.0
    while len(list(folder.iterdir())) < 2:
        if time.monotonic() > end:
            raise TimeoutError("nobody else came")
        time.sleep(0.01)
    return dict.fromkeys(task["sets"], (1.0 / task["threads"], 0.0, False))


def half(task: Task) -> dict[str, tuple[float, float]]:
    """Prepare one set, and fail at the others."""
    if task["sets"] != ["random"]:
        raise ValueError("no such set")
    return {"random": (0.5, 0.25, True)}


def stand_in_a_queue(task: Task) -> str:
    """Until somebody makes a file."""
    with stage(LAUNCH), stage(QUEUE):
        while not Path(task["until"]).exists():
            time.sleep(0.01)
    return "done"


def launch_without_end(task: Task) -> None:
    with stage(LAUNCH):
        with stage(QUEUE):
            pass
        time.sleep(600)


def segfault(task: Task) -> None:
    ctypes.string_at(0)


def abort(task: Task) -> None:
    os.abort()


def leave(task: Task) -> None:
    os._exit(0)


def leave_politely(task: Task) -> None:
    sys.exit("no more")


def interrupt(task: Task) -> None:
    raise KeyboardInterrupt


def hang(task: Task) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(600)


def hang_inside_native_code(task: Task) -> None:
    """A regular expression holds the interpreter: no other thread of the worker runs any more."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def hang_with_a_child(task: Task) -> None:
    subprocess.run(["sleep", task["seconds"]], check=True)


def stop(task: Task) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def eat_memory(task: Task) -> None:
    held = []
    while True:
        held.append(bytearray(64 << 20))


def eat_native_memory(task: Task) -> None:
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    while malloc(ctypes.c_size_t(64 << 20)):
        pass
    raise MemoryError


def recurse(task: Task) -> None:
    recurse(task)


def give_what_is_no_json(task: Task) -> object:
    return object()


def print_garbage(task: Task) -> str:
    """What a compiler prints is no answer, wherever it prints."""
    for text in ("{}", '{"value": 1}', "\0\xff"):
        sys.stdout.write(text + "\n")
        sys.stderr.write(text + "\n")
    subprocess.run(["echo", "garbage"], check=True)
    return "printed"


def print_without_end(task: Task) -> None:
    while True:
        os.write(2, b"error: " * 10_000)


def write_garbage(task: Task) -> str:
    """Whoever finds the pipe of the answers may write there too."""
    for fd in range(3, 64):
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
        except OSError:
            continue
        if is_pipe:
            with_end = task["garbage"].encode()
            try:
                os.write(fd, with_end)
            except OSError:
                continue
    return "written"


def leave_a_child_behind(task: Task) -> None:
    """The child holds the pipes, so they do not end when the worker does."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(7)


def until_interrupted(task: Task) -> str:
    """What it has, when it is told to end."""
    Path(task["begun"]).touch()
    while not interrupted():
        time.sleep(0.01)
    return "half of it"


def begin_and_wait(task: Task) -> str:
    """Say so in one file, and wait for another."""
    Path(task["begun"]).touch()
    while not Path(task["until"]).exists():
        time.sleep(0.01)
    return "done"
