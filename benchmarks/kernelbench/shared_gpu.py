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

# Parts of the memory that a process may hold.
SHARES = 32
_POLL_S = 0.05
# Of one element of inputs, parameters and results: ours and theirs, those of the comparison, and a
# worker's own, each twice.
_COPIES = 8
_CONTEXTS_BYTES = 3 * 2**30


def shares_of(elements: int, itemsize: int, memory: int) -> int:
    """The shares that a problem of so many elements needs, all of them at most."""
    share = memory // SHARES
    wanted = elements * itemsize * _COPIES + _CONTEXTS_BYTES
    return max(1, min(SHARES, -(-wanted // share)))


@contextlib.contextmanager
def memory(folder: Path, wanted: int) -> Iterator[None]:
    """Hold ``wanted`` shares; who came first has them first."""
    held: list[int] = []
    try:
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
        yield
    finally:
        for handle in held:
            os.close(handle)


def _opened(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR, 0o600)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
