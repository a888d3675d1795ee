"""The memory of one GPU in shares, for processes side by side.

Compilers and searches keep the cores busy while one process measures, in its turn
(mirage_py/runtime/timing/turns.py). Memory is held by locks as well, which a process that dies
gives back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from mirage_py.runtime.base.stages import QUEUE, stage

# Parts of the memory that a process may hold.
SHARES = 32
_POLL_S = 0.05
# What each worker takes whether it has a row or not: CUDA contexts and kernels of its own process,
# of its check worker and of the one on standby, and what their allocators keep between two tasks.
_CONTEXTS_BYTES = 4 * 2**30


def shares_of(wanted: int, memory: int, jobs: int = 1) -> int:
    """The shares of a row that takes so many bytes, beside what ``jobs`` workers take in any case;
    all of them at most.
    """
    share = max(1, memory - jobs * _CONTEXTS_BYTES) // SHARES
    return max(1, min(SHARES, -(-wanted // share)))


@contextlib.contextmanager
def memory(folder: Path, wanted: int) -> Iterator[None]:
    """Hold ``wanted`` shares; who came first has them first. Waiting is no time of the row's."""
    held: list[int] = []
    try:
        with stage(QUEUE):
            _take(folder, wanted, held)
        yield
    finally:
        for handle in held:
            os.close(handle)


def _take(folder: Path, wanted: int, held: list[int]) -> None:
    gate = _opened(folder / "gate")
    held.append(gate)
    fcntl.flock(gate, fcntl.LOCK_EX)
    taken: dict[int, int] = {}
    while len(taken) < wanted:
        for number in range(SHARES):
            if number not in taken and len(taken) < wanted:
                handle = _opened(folder / str(number))
                if _locked(handle):
                    taken[number] = handle
                    held.append(handle)
                else:
                    os.close(handle)
        if len(taken) < wanted:
            time.sleep(_POLL_S)
    fcntl.flock(gate, fcntl.LOCK_UN)


def _opened(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR, 0o600)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
