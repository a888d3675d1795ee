"""Shorter switch intervals of Python's threads, while a search and torch.compile run in one
process.

A thread that lets go of the interpreter, as each call of NumPy and of egglog does, gets it back
when the turn of the other is over. With Python's 5 ms, a class table of 30 ms of work took 1.1 s
beside torch.compile.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_TURN_S = 0.0002

_LOCK = threading.Lock()
# Who needs short turns now, and what the turns of this process are without them.
_USERS: list[float] = []


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """Turns are short during the block, and as they were when the last such block is over."""
    with _LOCK:
        _USERS.append(_USERS[0] if _USERS else sys.getswitchinterval())
        sys.setswitchinterval(min(_TURN_S, _USERS[0]))
    try:
        yield
    finally:
        with _LOCK:
            usual = _USERS.pop()
            if not _USERS:
                sys.setswitchinterval(usual)
