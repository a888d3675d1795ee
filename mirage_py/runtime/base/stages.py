"""Stages of a task that matter to who waits for it, as a worker process tells its parent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

# A kernel runs that may never end; another process has its turn on the GPU.
LAUNCH, QUEUE = "launch", "queue"

_LISTENERS: list[Callable[[str], None]] = []
_UNDER_WAY = [""]
_INTERRUPTED = [False]


def interrupt(*, over: bool = True) -> None:
    """Have ``interrupted`` say so; safe in the handler of a signal."""
    _INTERRUPTED[0] = over


def interrupted() -> bool:
    """Whether the task that this worker process is at should end soon, with what it has."""
    return _INTERRUPTED[0]


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


def enter(name: str) -> None:
    """From now on, to the end of the task, this is the stage outside of all others."""
    _UNDER_WAY[0] = name
    _tell()


def _tell() -> None:
    for listener in _LISTENERS:
        listener(_UNDER_WAY[-1])
