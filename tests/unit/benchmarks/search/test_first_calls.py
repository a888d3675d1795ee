"""Rows of first calls."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.search import first_calls


def _candidate(name: str, us: float) -> Any:
    return SimpleNamespace(timing=SimpleNamespace(name=name, time_us=us), kind="one kernel")


def test_the_fastest_plans_are_named() -> None:
    plans = [_candidate("plan 0", 3.0), _candidate("plan 1", inf), _candidate("plan 2", 2.0)]
    result: Any = SimpleNamespace(candidates=plans)
    found = first_calls.timed(result)
    assert (found["plans"], found["timed"]) == (3, 2)
    assert found["fastest"] == ["2.00 plan 2: one kernel", "3.00 plan 0: one kernel"]
    assert found["structures"] == {"one kernel": 2}
    assert found["in_order"] == [("one kernel", 3)]


def test_seconds_go_to_the_stage_that_progress_told_of() -> None:
    timeline = [(0.5, "searching"), (2.0, "ranking the instances of 3 families"), (3.0, "compiled")]
    found = first_calls.by_stage(timeline, 7.0)
    assert found == {"before": 0.5, "searching": 1.5, "ranking": 1.0, "compiled": 4.0}


def test_a_row_without_a_result_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    first_calls._show("ntrans-b1", {"fault": "the process ended"})
    assert "the process ended" in capsys.readouterr().out
