"""What a worker says of itself decides whether its time counts, and what its end means."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from mirage_py.runtime.base.stages import LAUNCH, QUEUE
from mirage_py.runtime.numerical_check.check_pool import Trial, _trial
from mirage_py.runtime.process import worker_process
from mirage_py.runtime.process.worker_process import WorkerProcess


def task(name: str, **more: str) -> dict[str, Any]:
    return {"service": f"unit.runtime.fault_services:{name}", **more}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    found = WorkerProcess({}, 1 << 30, ())
    yield found
    found.kill()


def _let_time_pass(
    monkeypatch: pytest.MonkeyPatch,
    after: list[str],
    seconds: float,
    then: Callable[[], object] = lambda: None,
) -> None:
    """The clock stands, but for so many seconds at once when the worker has told of some stages."""
    now, told = 0.0, []
    line, ready = WorkerProcess._line, worker_process._ready

    def noted(self: WorkerProcess, process: Any, end: float) -> dict[str, Any]:
        answer = line(self, process, end)
        told.extend(answer[key] for key in answer if key == "stage")
        return answer

    def waits(stream: IO[bytes], event: int, _: float) -> bool:
        nonlocal now
        if event == select.POLLIN and told == after and now == 0.0:
            now = seconds
            then()
            return False
        return ready(stream, event, 300.0)

    monkeypatch.setattr(WorkerProcess, "_line", noted)
    monkeypatch.setattr(worker_process, "_ready", waits)
    monkeypatch.setattr(worker_process.time, "monotonic", lambda: now)


def test_a_queue_does_not_count(
    worker: WorkerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert worker.ask(task("works"), 300.0).done
    turn = tmp_path / "turn"
    _let_time_pass(monkeypatch, [LAUNCH, QUEUE], 1000.0, turn.touch)
    reply = worker.ask(task("stand_in_a_queue", until=str(turn)), 3.0)
    assert reply.done, reply.reason
    assert (reply.value, reply.seconds) == ("done", 1000.0)


def test_a_launch_without_end_is_a_fault(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch):
    assert worker.ask(task("works"), 300.0).done
    _let_time_pass(monkeypatch, [LAUNCH, QUEUE, LAUNCH], 3.5)
    launched = worker.ask(task("launch_without_end"), 3.0)
    assert (launched.kind, launched.stage) == ("timeout", LAUNCH)
    found = _trial(launched)
    assert found.evidence is not None
    assert not found.evidence.passed
    assert not found.skipped


def test_all_else_that_takes_long_is_no_fault(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
):
    assert worker.ask(task("works"), 300.0).done
    _let_time_pass(monkeypatch, [], 3.5)
    slow = worker.ask(task("hang"), 3.0)
    assert (slow.kind, slow.stage) == ("timeout", "")
    assert _trial(slow) == Trial(skipped=True)
