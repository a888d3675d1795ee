"""A budget holds: every stage ends within its share, by a clock that goes on with the work done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from unit.search import programs

from mirage_py.pipeline import pipeline, searching
from mirage_py.pipeline.pipeline import Request, rank_plans
from mirage_py.pipeline.selection.selection import Ranking
from mirage_py.pipeline.selection.time_budget import USUAL_S
from mirage_py.result import Result
from mirage_py.search.enumerate import runners
from mirage_py.search.model.cost_model import KernelModel
from mirage_py.targets import H200
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.rounding.float_screen import FloatScreen

# Seconds that a unit of each stage's work takes.
_JOB_S, _SCREEN_S, _ESTIMATE_S, _FAMILY_S = 1.0, 1.0, 0.01, 1.0


class _Clock:
    """Seconds, which pass with work and with nothing else."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self._patch = patch
        patch.setattr(pipeline.time, "monotonic", lambda: self.now)

    def takes(self, owner: Any, name: str, seconds: float) -> None:
        """A call of this takes so long."""
        real: Callable[..., Any] = getattr(owner, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return real(*args, **kwargs)

        self._patch.setattr(owner, name, called)

    def marks(self, name: str) -> list[float]:
        """When each call of a stage of the pipeline ended, from the start on."""
        owner = searching if name == "search" else pipeline
        real: Callable[..., Any] = getattr(owner, name)
        ends: list[float] = []

        def called(*args: Any, **kwargs: Any) -> Any:
            found = real(*args, **kwargs)
            ends.append(self.now - 1000.0)
            return found

        self._patch.setattr(owner, name, called)
        return ends


@pytest.mark.parametrize("budget", [20.0, 60.0])
def test_every_stage_ends_within_its_share(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    clock.takes(runners, "run", _JOB_S)
    clock.takes(FloatScreen, "fault", _SCREEN_S)
    clock.takes(KernelModel, "estimate", _ESTIMATE_S)
    clock.takes(FamilyTests, "run", _FAMILY_S)
    ends = {name: clock.marks(name) for name in ("search", "rank_for", "verify_families")}
    request = Request(target="h200", backend="triton", effort="quick", budget=budget)
    found = rank_plans(programs.lora(), H200, request)
    assert found.instances
    slack = 0.1 * budget
    assert max(ends["search"]) <= 0.3 * budget + slack
    assert max(ends["rank_for"]) <= 0.48 * budget + slack
    assert max(ends["verify_families"]) <= 0.55 * budget + slack


@pytest.mark.parametrize(("traced_s", "counted_s"), [(2.0, 2.0), (60.0, 3.3)])
def test_tracing_is_of_the_usual_budget(
    traced_s: float, counted_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages of a call had 11 s after it was traced, which took 5."""
    clock = _Clock(monkeypatch)
    clock.takes(runners, "run", 0.1)
    clock.takes(KernelModel, "estimate", 0.001)
    ends = {name: clock.marks(name) for name in ("search", "rank_for", "verify_families")}
    deadlines: list[float | None] = []

    def measured(ranking: Ranking, deadline: float | None) -> Result:
        deadlines.append(deadline)
        return ranking.predicted()

    monkeypatch.setattr(Ranking, "measured", measured)
    begun = clock.now - traced_s
    request = Request(target="h200", backend="triton", effort="quick", begun=begun)
    pipeline._run(programs.lora(), H200, request, measure=True)
    assert deadlines == [pytest.approx(1000.0 - counted_s + USUAL_S["quick"])]
    left = USUAL_S["quick"] - counted_s
    assert 0.0 < max(ends["search"]) <= max(ends["rank_for"]) <= max(ends["verify_families"]) < left


def test_a_budget_that_was_asked_for_begins_after_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    deadlines: list[float | None] = []

    def measured(ranking: Ranking, deadline: float | None) -> Result:
        deadlines.append(deadline)
        return ranking.predicted()

    monkeypatch.setattr(Ranking, "measured", measured)
    request = Request("h200", "triton", "quick", budget=20.0, begun=clock.now - 5.0)
    pipeline._run(programs.row_softmax(), H200, request, measure=True)
    assert deadlines == [1020.0]


def test_pieces_that_came_to_nothing_leave_the_whole_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two large layers, each with a norm behind it, had no plan at 10 seconds."""
    clock, budget = _Clock(monkeypatch), 20.0

    def in_vain(*_: object) -> list[UGraph]:
        clock.now += 0.6 * budget
        return []

    monkeypatch.setattr(searching, "chain_cuts", lambda _: [(0,)])
    monkeypatch.setattr(searching, "with_rewrites", in_vain)
    clock.takes(runners, "run", 0.1)
    request = Request(target="h200", backend="triton", effort="quick", budget=budget)
    assert rank_plans(programs.lora(), H200, request).instances
