"""Rows of first calls."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.search import first_calls
from mirage_py.reasons import Code, reason


def _candidate(name: str, us: float, **others: Any) -> Any:
    timing = SimpleNamespace(name=name, time_us=us)
    return SimpleNamespace(timing=timing, kind="one kernel", **{"reason": None, **others})


def _result(candidates: list[Any]) -> Any:
    return SimpleNamespace(candidates=candidates)


def test_the_fastest_plans_are_named() -> None:
    plans = [_candidate("plan 0", 3.0), _candidate("plan 1", inf), _candidate("plan 2", 2.0)]
    found = first_calls.timed(_result(plans))
    assert (found["plans"], found["timed"]) == (3, 2)
    assert found["fastest"] == ["2.00 plan 2: one kernel", "3.00 plan 0: one kernel"]
    assert found["structures"] == {"one kernel": 2}


def test_a_line_for_each_plan_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_calls, "brief", str)
    timed = _candidate("plan 0", 3.0, plan="tiles a")
    wrong = _candidate("plan 1", inf, plan="tiles b", reason=reason(Code.RACE, "0.1"))
    late = [_candidate(f"plan {n}", inf, plan="tiles c") for n in range(2, 40)]
    lines = first_calls.tried(_result([timed, wrong, *late]))
    assert lines[:3] == [
        "0 3.00 one kernel: tiles a",
        "1 - race one kernel: tiles b",
        "2 - one kernel: tiles c",
    ]
    assert len(lines) == 1 + first_calls._UNTIMED


def test_a_kernel_in_one_line() -> None:
    kernel = {
        "grid": {"t": 64, "s_part": 1},
        "loops": [["s", 128]],
        "num_warps": 4,
        "num_stages": [3, 3],
        "flags": {"arch": "sm_90a", "producer": "warps"},
    }
    assert first_calls._brief_kernel(kernel) == "t64 s_part1/s128 w4 n3 producer=warps"
    assert first_calls._brief_kernel({"library": "matmul"}) == "matmul"


def test_structures_that_were_ranked_and_not_verified() -> None:
    plans = [("one kernel", "a"), ("2 kernels", "b"), ("2 kernels", "c"), ("2 kernels", "c")]
    ranked = [SimpleNamespace(name=n, family=SimpleNamespace(digest=d)) for n, d in plans]
    ranking: Any = SimpleNamespace(ranked=ranked, verified={"a": None, "c": None})
    assert first_calls.ranked(ranking) == {"one kernel": [1, 1, 1], "2 kernels": [3, 2, 1]}


def test_what_serves_is_timed_beside_the_fastest_committed_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plan(name: str, *shape: int) -> Any:
        program = SimpleNamespace(inputs=[SimpleNamespace(shape=shape)])
        return SimpleNamespace(name=name, ugraph=SimpleNamespace(program=program))

    def timed(entries: Any, sets: int, *, reps: int) -> dict[str, Any]:
        called = {which: entry(sets - 1) for which, entry in entries.items()}
        assert called == {"served": ("ours", (2, 3)), "committed": ("quick", (2, 3))}
        return {which: SimpleNamespace(median_us=len(which) + reps) for which in entries}

    measured = {"a-b1": [SimpleNamespace(plan=plan("slow"), us=3.0)]}
    again = {"a-b1": [SimpleNamespace(plan=plan("quick"), us=2.0)]}
    runs = iter(3 * [measured, again])
    monkeypatch.setattr(
        "benchmarks.calibration.calibrate.read", lambda _path, keys: next(runs).get(*keys, [])
    )
    monkeypatch.setattr(
        "mirage_py.runtime.launch.launch.PlanRunner",
        lambda plan: lambda x: (plan.name, tuple(x.shape)),
    )
    monkeypatch.setattr("mirage_py.runtime.timing.timing.time_interleaved", timed)
    x = torch.zeros(2, 3)
    assert first_calls.beside("a-b1", plan("ours", 2, 3), [x]) == {"served": 37, "committed": 40}
    assert first_calls.beside("a-b1", plan("ours", 6), [x]) == {}
    assert first_calls.beside("a-b1", None, [x]) == {}


def test_seconds_go_to_the_stage_that_progress_told_of() -> None:
    timeline = [(0.5, "searching"), (2.0, "ranking the instances of 3 families"), (3.0, "compiled")]
    found = first_calls.by_stage(timeline, 7.0)
    assert found == {"before": 0.5, "searching": 1.5, "ranking": 1.0, "compiled": 4.0}


def test_a_row_without_a_result_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    first_calls._show("ntrans-b1", {"fault": "the process ended"})
    assert "the process ended" in capsys.readouterr().out
