"""Compile workers that wait for the next tuning.

A worker imports triton before it compiles anything, and what it compiles first takes longer than
what comes after. Who tunes one program after the other, as torch.compile does with the regions of a
model, asks for workers that start at once and stay.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from mirage_py.errors import MirageError
from mirage_py.runtime.process.executor import Executor

# Seconds without a tuning after which they end.
IDLE_S = 60.0


class WarmWorkers:
    """At most one pool that nobody uses now. Safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle_s = 0.0
        self._count = 0
        self._pool: Executor | None = None
        self._starting: threading.Thread | None = None
        self._timer: threading.Timer | None = None

    def keep(self, count: int, make: Callable[[], Executor], idle_s: float = IDLE_S) -> None:
        """From now on a pool of ``count`` workers stays, until nobody has used it for ``idle_s``;
        one starts in the background if there is none.
        """
        with self._lock:
            is_new = self._idle_s == 0.0
            self._idle_s = idle_s
            if is_new:
                pool = make()
                self._starting = threading.Thread(target=_start, args=(pool, count), daemon=True)
                self._starting.start()
                self._store(count, pool)

    def take(self, count: int) -> Executor | None:
        """The warm pool, if it has so many workers: it is the caller's until it is given
        back.
        """
        with self._lock:
            if self._pool is None or self._count != count:
                return None
            pool, self._pool = self._pool, None
            if self._timer is not None:
                self._timer.cancel()
            starting, self._starting = self._starting, None
        if starting is not None:
            starting.join()
        return pool

    def give(self, count: int, pool: Executor) -> None:
        """Keep a pool for the next one, or stop it."""
        with self._lock:
            if self._idle_s and self._pool is None:
                self._store(count, pool)
                return
        pool.close()

    def end(self) -> None:
        """Stop the warm workers, and keep none any more."""
        with self._lock:
            pool, self._pool, self._idle_s = self._pool, None, 0.0
            starting, self._starting = self._starting, None
            if self._timer is not None:
                self._timer.cancel()
        if starting is not None:
            starting.join()
        if pool is not None:
            pool.close()

    def _store(self, count: int, pool: Executor) -> None:
        self._count, self._pool = count, pool
        self._timer = threading.Timer(self._idle_s, self.end)
        self._timer.daemon = True
        self._timer.start()


def _start(pool: Executor, count: int) -> None:
    # One that does not start is told of by the first task that needs it.
    with contextlib.suppress(MirageError):
        pool.map([{"service": "mirage_py.runtime.process.warm_workers:nothing"}] * count)


def nothing(task: Mapping[str, Any]) -> None:
    """What a worker does that has only been started."""
    del task


WARM = WarmWorkers()
