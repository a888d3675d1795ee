"""Workers of the suite: what goes wrong in a row costs that row."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.farm.farm import Farm, Job, Outcome

HERE = "unit.benchmarks.row_services"


def job(key: str, **more: Any) -> Job:
    return Job(key, {"service": f"{HERE}:row", "key": key, **more})


def farm(outcomes: list[Outcome], *, gpus=("0",), row_s=600.0, prepare="prepare", **more: Any):
    return Farm(gpus, f"{HERE}:{prepare}", row_s, on_outcome=outcomes.append, **more)


def test_a_crash_is_tried_once_more_and_costs_no_other_row(tmp_path: Path):
    outcomes: list[Outcome] = []
    jobs = [
        job("crashes", crash=True),
        job("once", crash_once=str(tmp_path / "crashed")),
        job("works"),
    ]
    with farm(outcomes) as workers:
        assert workers.run(jobs) == []
    found = {o.job.key: o for o in outcomes}
    assert found["works"].value["row"]["visible"] == "0"
    assert (found["once"].attempt, found["once"].reason) == (2, "")
    assert found["crashes"].value is None
    assert found["crashes"].attempt == 2
    assert "SIGABRT; the last stage was: timing 4 candidates" in found["crashes"].reason


def test_a_row_that_hangs_is_stopped():
    outcomes: list[Outcome] = []
    with farm(outcomes, row_s=0.3) as workers:
        assert workers.run([job("hangs", seconds=60.0)]) == []
    assert "longer than 0.3 s" in outcomes[0].reason


def test_each_gpu_has_its_own_worker_and_a_broken_one_is_left_out():
    outcomes: list[Outcome] = []
    with farm(outcomes, gpus=("2", "broken"), prepare="refuse") as workers:
        assert workers.run([job("a"), job("b")]) == []
    assert [o.value["row"]["visible"] for o in outcomes] == ["2", "2"]
    assert workers.faults == ["GPU broken is left out: RuntimeError: no kernel image is available"]


def test_without_a_gpu_that_works_nothing_is_run():
    outcomes: list[Outcome] = []
    with farm(outcomes, gpus=("broken",), prepare="refuse") as workers:
        assert [j.key for j in workers.run([job("a")])] == ["a"]
    assert outcomes == []


def test_at_the_deadline_what_is_not_done_is_left(monkeypatch: pytest.MonkeyPatch):
    outcomes: list[Outcome] = []
    jobs = [job("short"), job("long", seconds=600.0), job("never")]
    # Its clock stands until the first is done; in the half second that is left the next begins.
    clock = SimpleNamespace(monotonic=lambda: 9_999.5 if outcomes else 0.0)
    monkeypatch.setattr("benchmarks.farm.farm.time", clock)
    with farm(outcomes, row_s=600.0) as workers:
        left = workers.run(jobs, deadline=10_000.0)
    assert [o.job.key for o in outcomes] == ["short"]
    assert [j.key for j in left] == ["long", "never"]


def test_rows_that_are_there_are_skipped():
    outcomes: list[Outcome] = []
    with farm(outcomes) as workers:
        assert workers.run([job("a"), job("b")], skip=lambda j: j.key == "a") == []
    assert [o.job.key for o in outcomes] == ["b"]
