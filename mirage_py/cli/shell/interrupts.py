"""Ctrl-C while a result is being made: once keeps the best so far, twice ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STDERR = 2
_SAID = b"\ninterrupted: finishing with the best so far; Ctrl-C again ends at once\n"


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """A function that says whether the user pressed Ctrl-C while the context lasts.

    The first one is answered on stderr, the second one raises KeyboardInterrupt, where the program
    is or where it next asks. An interrupt that the process was started to ignore stays ignored, and
    outside of the main thread, where there can be no handler, nothing changes.
    """
    pressed = 0

    def should_stop() -> bool:
        # What a handler raises is lost where a callback of a weak reference runs just then.
        if pressed > 1 and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return pressed > 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            raise KeyboardInterrupt
        # Straight to the file: a handler may run in the middle of another write to the stream.
        with contextlib.suppress(OSError):
            os.write(_STDERR, _SAID)

    before = signal.getsignal(signal.SIGINT)
    # A shell starts background jobs with the interrupt ignored.
    installed = before is not signal.SIG_IGN
    if installed:
        try:
            signal.signal(signal.SIGINT, handle)
        except ValueError:
            installed = False
    try:
        yield should_stop
    finally:
        if installed:
            signal.signal(signal.SIGINT, before)
