"""Compile workers, and the one that checks kernels on a GPU, that wait for the next tuning.

A worker imports triton before it compiles anything, and what it compiles first takes longer than
what comes after; one that checks imports torch and makes a GPU context. Who tunes one program
after the other, as torch.compile does with the regions of a model, asks for workers that start at
once and stay.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import wait
from typing import Any

from mirage_py.runtime.process.executor import Executor
from mirage_py.runtime.process.worker_process import Task

# Seconds without a tuning after which they end.
IDLE_S = 60.0
# What the last task of a worker is waited for, as for the GPU memory that it gives back.
_LAST_S = 2.0
# With no more workers than these none does anything ahead: this process and what is asked for now
# take the cores.
FEW_PLACES = 3
# Workers that start at the same time, beside a search.
_AT_ONCE = 3


class WarmWorkers:
    """At most one pool that nobody uses now, each of whose workers has done ``task`` first. Safe to
    call from many threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle_s = 0.0
        self._key: Hashable = None
        self._pool: Executor | None = None
        self._timer: threading.Timer | None = None

    def keep(
        self,
        key: Hashable,
        make: Callable[[], Executor],
        idle_s: float = IDLE_S,
        first: Task | None = None,
    ) -> None:
        """From now on a pool of some ``key``, as its number of workers, stays, until nobody has
        used it for ``idle_s``; one starts in the background if there is none, each worker with the
        task ``first``.
        """
        with self._lock:
            is_new = self._idle_s == 0.0
            self._idle_s = idle_s
            if is_new:
                pool = make()
                pool.start(first or NOTHING, _AT_ONCE)
                self._store(key, pool)

    def take(self, key: Hashable) -> Executor | None:
        """The warm pool, if it has this key: it is the caller's until it is given back. A worker
        that is still starting takes its next task as soon as it has.
        """
        with self._lock:
            if self._pool is None or self._key != key:
                return None
            pool, self._pool = self._pool, None
            if self._timer is not None:
                self._timer.cancel()
        return pool

    def give(
        self, key: Hashable, pool: Executor, last: Task | None = None, *, waits: bool = False
    ) -> None:
        """Keep a pool for the next one, each of its workers with the task ``last``, or stop it;
        ``waits`` a little for those to be done.
        """
        with self._lock:
            is_kept = bool(self._idle_s) and self._pool is None
            asked = [pool.submit(last) for _ in range(pool.places)] if is_kept and last else []
            if is_kept:
                self._store(key, pool)
        wait(asked, _LAST_S if waits else 0.0)
        if not is_kept:
            pool.close()

    @contextlib.contextmanager
    def lent(self, key: Hashable) -> Iterator[Executor | None]:
        """What ``take`` gives, and ``give`` after the block."""
        pool = self.take(key)
        try:
            yield pool
        finally:
            if pool is not None:
                self.give(key, pool)

    def end(self) -> None:
        """Stop the warm workers, and keep none any more."""
        with self._lock:
            pool, self._pool, self._idle_s = self._pool, None, 0.0
            if self._timer is not None:
                self._timer.cancel()
        if pool is not None:
            pool.close()

    def _store(self, key: Hashable, pool: Executor) -> None:
        self._key, self._pool = key, pool
        self._timer = threading.Timer(self._idle_s, self.end)
        self._timer.daemon = True
        self._timer.start()


def nothing(task: Mapping[str, Any]) -> None:
    """What a worker does that has only been started."""
    del task


NOTHING: Task = {"service": "mirage_py.runtime.process.warm_workers:nothing"}
WARM = WarmWorkers()
# By device and number of workers.
WARM_CHECK = WarmWorkers()
