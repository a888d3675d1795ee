"""Shares of a time budget by stage."""

from __future__ import annotations

import math

import pytest

from mirage_py.pipeline.selection import time_budget
from mirage_py.pipeline.selection.time_budget import TimeBudget, usual_s


def test_late_stages_have_time_after_long_ones(monkeypatch: pytest.MonkeyPatch):
    budget = TimeBudget(100.0, started=1000.0)
    assert budget.end == 1100.0
    assert budget.ranked_at_last(1040.0) == 1048.0
    for now, searched_by, ranked_by, verified_by, measured_by in (
        (1001.0, 1030.0, 1040.0, 1050.0, 1100.0),
        (1010.0, 1035.0, 1040.0, 1050.0, 1100.0),
        (1095.0, 1120.0, 1107.0, 1105.0, 1105.0),
    ):
        monkeypatch.setattr(time_budget.time, "monotonic", lambda now=now: now)
        assert budget.searched_by() == searched_by
        assert budget.ranked_by() == ranked_by
        assert budget.verified_by() == verified_by
        assert budget.measured_by() == measured_by


def test_without_a_budget_nothing_ends():
    for budget in (TimeBudget(None), TimeBudget(math.inf)):
        ends = (
            budget.searched_by(),
            budget.ranked_by(),
            budget.end,
            budget.verified_by(),
            budget.measured_by(),
        )
        assert set(ends) in ({None}, {math.inf})


def test_a_network_of_many_parts_has_no_more_time_than_one_of_a_few():
    """Found on an H200: a network with 46 parts had 517 s, and was stopped at 120."""
    assert [usual_s("quick", parts) for parts in (0, 1, 3, 46)] == [11.0, 22.0, 44.0, 55.0]
    assert usual_s("full", 57) == 5 * usual_s("full")


@pytest.mark.parametrize(("is_usual", "late_s"), [(False, 10.0), (True, 200 / 3)])
def test_parts_have_what_is_left_of_a_budget_that_was_asked_for(
    is_usual: bool, late_s: float, monkeypatch: pytest.MonkeyPatch
):
    budget = TimeBudget(100.0, started=1000.0, is_usual=is_usual)
    for now, left in ((1020.0, 80.0), (1095.0, late_s)):
        monkeypatch.setattr(time_budget.time, "monotonic", lambda now=now: now)
        assert budget.left() == pytest.approx(left)
    assert TimeBudget(None).left() is None


@pytest.mark.parametrize(("seconds", "most"), [(5.0, 1.0), (11.0, 2.2), (60.0, 7.2)])
def test_a_late_ranking_of_a_short_budget_has_seconds(
    monkeypatch: pytest.MonkeyPatch, seconds: float, most: float
):
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: 1000.0 + seconds)
    assert TimeBudget(seconds, started=1000.0).ranked_by() == 1000.0 + seconds + most
