"""The log line of a region that was optimised."""

from __future__ import annotations

from typing import Any

from mirage_py.dynamo.serve.measured_format import format_measured


def candidate(time_us: float | None, reason: str = "", code: str = "") -> dict[str, Any]:
    return {"time_us": time_us, "passed": not reason, "reason": reason, "code": code}


def report(*candidates: dict[str, Any], source: str = "measured") -> dict[str, Any]:
    baseline = {"name": "compile", "time_us": 12.04, "source": source}
    return {"baseline": baseline, "candidates": list(candidates), "notes": ["a note"]}


def test_the_best_of_ours_stands_beside_the_best_of_theirs():
    wrong = "large inputs: Y[0] = 1 instead of 2"
    dropped = candidate(11.0, wrong, "too_far"), candidate(9.0, "Y[7] = 3, not 4", "too_far")
    words = format_measured(report(candidate(13.26), candidate(None), *dropped))
    assert words == (f"ours 13.3 us, compile 12.0 us; 1 of 4 plans timed; 2 x {wrong}; a note")


def test_none_that_was_timed_is_said():
    assert format_measured(report(candidate(None))).startswith(
        "none of ours, compile 12.0 us; 0 of 1"
    )


def test_predictions_are_called_so():
    words = format_measured(report(candidate(13.0), source="model"))
    assert words == "ours 13.0 us, compile 12.0 us by the cost model"


def test_a_reason_says_why_and_not_where():
    path = "/tmp/cache_of-a.user/sources/18d05c6bdce6/region.cu"
    words = format_measured(report(candidate(None, f"it did not run: {path}(12): no such symbol")))
    assert "1 x it did not run: region.cu(12): no such symbol; a note" in words
    shapes = "Y[0, 3] = 0.5 instead of 1/2, more than 3 us/row away"
    assert shapes in format_measured(report(candidate(None, shapes)))


def test_another_report_costs_no_kernel():
    assert format_measured({}) == "its report is not one of ours"
