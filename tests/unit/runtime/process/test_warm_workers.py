"""Workers that stay from one tuning to the next."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from mirage_py.runtime.process import warm_workers
from mirage_py.runtime.process.executor import WorkerKind
from mirage_py.runtime.process.warm_workers import WarmWorkers
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply


class Pool:
    """Counts what is asked of it."""

    places = 3

    def __init__(self) -> None:
        self.tasks: list[Any] = []
        self.waiting: list[Future[Reply]] = []
        self.answers = True
        self.ended = threading.Event()

    @property
    def closed(self) -> bool:
        return self.ended.is_set()

    def start(self, task: Any, at_once: int) -> None:
        assert at_once < self.places + 1
        self.tasks.append([task] * self.places)

    def submit(self, task: Any) -> Future[Reply]:
        future: Future[Reply] = Future()
        self.waiting.append(future)
        self.tasks.append(task)
        if self.answers:
            future.set_result(Reply("done"))
        return future

    def close(self) -> None:
        self.ended.set()


def test_the_next_one_takes_what_was_given_back():
    kept, pool = WarmWorkers(), Pool()
    kept.keep(3, lambda: pool, first={"service": "ready"})
    taken = kept.take(3)
    assert taken is pool
    assert pool.tasks.pop(0) == [{"service": "ready"}] * 3
    assert kept.take(3) is None
    kept.give(3, pool, {"service": "forget"})
    assert pool.tasks == [{"service": "forget"}] * 3
    assert kept.take(2) is None
    assert kept.take(3) is pool
    assert not pool.closed


def test_who_gives_a_pool_back_goes_on_when_its_workers_have_given_back_what_they_held(
    monkeypatch: pytest.MonkeyPatch,
):
    """Else what comes next finds the GPU's memory taken."""
    monkeypatch.setattr(warm_workers, "_LAST_S", 600.0)
    kept, pool = WarmWorkers(), Pool()
    kept.keep(3, lambda: pool)
    assert kept.take(3) is pool
    pool.answers = False
    forget = {"service": "forget"}
    giving = threading.Thread(target=kept.give, args=(3, pool, forget), kwargs={"waits": True})
    giving.start()
    giving.join(0.05)
    assert giving.is_alive()
    for future in pool.waiting:
        future.set_result(Reply("done"))
    giving.join(600.0)
    assert not giving.is_alive()


def test_without_keeping_a_pool_ends_with_its_use():
    kept, pool = WarmWorkers(), Pool()
    kept.give(3, pool, {"service": "forget"})
    assert pool.closed
    assert not pool.tasks  # which would start a process that nobody stops
    assert kept.take(3) is None


def test_a_second_pool_beside_one_that_waits_ends():
    kept, first, second = WarmWorkers(), Pool(), Pool()
    kept.keep(3, lambda: first)
    kept.give(3, second)
    assert second.closed
    assert not first.closed
    kept.end()
    assert first.closed


def test_what_nobody_uses_for_a_while_ends():
    kept, pool = WarmWorkers(), Pool()
    kept.keep(1, lambda: pool, idle_s=0.05)
    assert pool.ended.wait(600.0)
    assert kept.take(1) is None
    # Later somebody may ask again.
    again = Pool()
    kept.keep(1, lambda: again)
    assert kept.take(1) is again


def test_workers_serve_as_soon_as_they_have_started():
    kept = WarmWorkers()
    kept.keep(1, lambda: WorkerPool(1, WorkerKind(timeout_s=300.0, imports=())))
    pool = kept.take(1)
    assert pool is not None
    try:
        task = {"service": "mirage_py.runtime.process.warm_workers:nothing"}
        assert [reply.kind for reply in pool.map([task])] == ["done"]
        assert pool._workers[0].is_running
    finally:
        pool.close()


def test_workers_start_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch):
    pool = WorkerPool(5, WorkerKind(timeout_s=300.0, imports=()))
    begun: queue.SimpleQueue[int] = queue.SimpleQueue()
    go_on = threading.Semaphore(0)

    def ask(place: int, task: Any, timeout_s: float) -> Reply:
        begun.put(place)
        go_on.acquire()
        return Reply("done", place)

    monkeypatch.setattr(pool, "ask", ask)
    pool.start({}, 2)
    assert {begun.get(), begun.get()} == {0, 1}
    task = pool.submit({})  # which waits for none of them
    assert begun.get() == 2
    go_on.release(2)
    assert begun.get() in (3, 4)  # as soon as one is ready
    pool.close()
    go_on.release(10)
    assert task.result(300.0).done


def test_what_was_begun_ahead_is_done_once():
    with WorkerPool(2, WorkerKind(timeout_s=300.0, imports=())) as pool:
        task = {"service": "mirage_py.runtime.process.warm_workers:nothing"}
        pool.submit_ahead(task)
        pool.submit_ahead(task)
        (begun,) = pool._ahead.values()
        assert pool.submit(dict(task)) is begun
        assert pool.submit(task) is not begun
        assert begun.result(300.0).done
        pool.submit_ahead({**task, "more": 1})
        pool.end_ahead()
        assert pool.submit({**task, "more": 1}).result(300.0).done
