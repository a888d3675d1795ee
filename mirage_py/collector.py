"""Settings of Python's garbage collector for phases with many objects and little garbage."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_YOUNG = 200_000

_LOCK = threading.Lock()
# Who wants few collections now, and what the thresholds of this process are without them.
_USERS: list[tuple[int, int, int]] = []


@contextlib.contextmanager
def rarely_collecting() -> Iterator[None]:
    """Collections become rare, which is a sixth of a search's time, and a quarter in a process with
    all that torch.compile imports; when the last such block is over all is as before.
    """
    with _LOCK:
        _USERS.append(_USERS[0] if _USERS else gc.get_threshold())
        gc.set_threshold(_YOUNG, *_USERS[0][1:])
    try:
        yield
    finally:
        with _LOCK:
            before = _USERS.pop()
            if not _USERS:
                gc.set_threshold(*before)


@contextlib.contextmanager
def never_collecting() -> Iterator[None]:
    """One collection at the end, and none before: an e-graph may only be freed by the thread that
    made it, and collections happen in any thread.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        if was_enabled:
            gc.enable()
