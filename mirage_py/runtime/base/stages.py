"""Stages of a task that matter to who waits for it, as a worker process tells its parent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

# A kernel runs that may never end; another process has its turn on the GPU.
LAUNCH, QUEUE = "launch", "queue"

_LISTENERS: list[Callable[[str], None]] = []
_UNDER_WAY = [""]


def listen(listener: Callable[[str], None]) -> None:
    """Have every stage told that begins, or goes on after one within it; an empty one for none."""
    _LISTENERS.append(listener)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """The block is a stage."""
    _UNDER_WAY.append(name)
    _tell()
    try:
        yield
    finally:
        _UNDER_WAY.pop()
        _tell()


def _tell() -> None:
    for listener in _LISTENERS:
        listener(_UNDER_WAY[-1])
