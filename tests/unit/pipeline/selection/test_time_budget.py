"""Shares of a time budget by stage."""

from __future__ import annotations

import math

import pytest

from mirage_py.pipeline.selection import time_budget
from mirage_py.pipeline.selection.time_budget import TimeBudget, plan_count


@pytest.mark.parametrize(
    ("effort", "budget", "plans"),
    [
        ("quick", None, 160), ("quick", 45.0, 160), ("quick", 20.0, 72), ("quick", 0.0, 40),
        ("full", math.inf, 640), ("full", 280.0, 640), ("full", 20.0, 72), ("none", 1.0, 8),
    ],
)  # fmt: skip
def test_a_small_budget_ranks_fewer_plans(effort: str, budget: float | None, plans: int):
    assert plan_count(effort, budget) == plans


def test_late_stages_have_time_after_long_ones(monkeypatch: pytest.MonkeyPatch):
    budget = TimeBudget(100.0, started=1000.0)
    assert (budget.searched_by, budget.ranked_by, budget.end) == (1025.0, 1035.0, 1100.0)
    for now, verified_by, measured_by in ((1010.0, 1045.0, 1100.0), (1095.0, 1105.0, 1105.0)):
        monkeypatch.setattr(time_budget.time, "monotonic", lambda now=now: now)
        assert budget.verified_by() == verified_by
        assert budget.measured_by() == measured_by


def test_without_a_budget_nothing_ends():
    for budget in (TimeBudget(None), TimeBudget(math.inf)):
        ends = (
            budget.searched_by,
            budget.ranked_by,
            budget.end,
            budget.verified_by(),
            budget.measured_by(),
        )
        assert set(ends) in ({None}, {math.inf})
