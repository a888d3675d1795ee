"""Settings of Python's garbage collector for phases with many objects and little garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_YOUNG = 200_000


@contextlib.contextmanager
def rarely_collecting() -> Iterator[None]:
    """Collections become rare, which is a sixth of a search's time; afterwards all is as before."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
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
