"""Frames that torch.compile cannot compile, run in eager instead of raising its errors."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

_LOCK = threading.Lock()
# What says of each such frame, with a stack, why: the user's own error follows where there is one.
_NOISY = logging.getLogger("torch._dynamo.convert_frame")


class _Suppressed:
    """A setting of the whole process, on as long as a thread is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self._before = (False, logging.NOTSET)

    def enter(self) -> None:
        from torch._dynamo import config

        with _LOCK:
            if not self.inside:
                self._before = config.suppress_errors, _NOISY.level
                config.suppress_errors = True
                _NOISY.setLevel(logging.ERROR)
            self.inside += 1

    def leave(self) -> None:
        from torch._dynamo import config

        with _LOCK:
            self.inside -= 1
            if not self.inside:
                config.suppress_errors, level = self._before
                _NOISY.setLevel(level)


_ALL = _Suppressed()


@contextlib.contextmanager
def suppressed_errors() -> Iterator[None]:
    """Where torch.compile fails on a frame, the frame runs as it stands: with the error that is
    the user's, if it is one, and without a second run of what came before.
    """
    _ALL.enter()
    try:
        yield
    finally:
        _ALL.leave()
