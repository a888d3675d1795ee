"""What a worker says of itself decides whether its time counts, and what its end means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mirage_py.runtime.base.stages import LAUNCH
from mirage_py.runtime.numerical_check.check_pool import Trial, _trial
from mirage_py.runtime.process.worker_process import WorkerProcess


def task(name: str, **more: str) -> dict[str, Any]:
    return {"service": f"unit.runtime.fault_services:{name}", **more}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    found = WorkerProcess({}, 1 << 30, ())
    yield found
    found.kill()


def test_a_queue_does_not_count(worker: WorkerProcess):
    assert worker.ask(task("works"), 300.0).done
    reply = worker.ask(task("stand_in_a_queue", seconds="4"), 3.0)
    assert reply.done, reply.reason
    assert reply.value == "done"


def test_a_launch_without_end_is_a_fault_and_all_else_that_takes_long_is_none(
    worker: WorkerProcess,
):
    launched = worker.ask(task("launch_without_end"), 2.0)
    assert (launched.kind, launched.stage) == ("timeout", LAUNCH)
    found = _trial(launched)
    assert found.evidence is not None
    assert not found.evidence.passed
    assert not found.skipped
    slow = worker.ask(task("hang"), 2.0)
    assert (slow.kind, slow.stage) == ("timeout", "")
    assert _trial(slow) == Trial(skipped=True)
