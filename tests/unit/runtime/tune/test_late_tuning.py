"""After the deadline of a tuning: what is needed to serve, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.runtime.tune.scene import BASE, WRONG, Scene, number_of, winner

from mirage_py.reasons import Code, reason
from mirage_py.runtime.tune import final_benchmark

TIMES = {**BASE, **{f"plan {n}": 9.0 + n / 10 for n in range(40)}}


class Late:
    """A clock at which every check of finalists and every timed candidate takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
        self._scene = scene
        monkeypatch.setattr(final_benchmark.time, "monotonic", self)

    def __call__(self) -> float:
        return float(self.spent)

    @property
    def spent(self) -> int:
        """Seconds so far."""
        checked = [n for stage, numbers in self._scene.check.asked[1:] for n in numbers]
        return len(checked) + sum(len(names) for _, names in self._scene.rounds)


@pytest.mark.parametrize(
    ("deadline", "raced", "checked", "spent"),
    [(-1.0, 2, [[0]], 2 + 2 + 1), (1000.0, 10, [[0, 1]], 2 + 10 + 2 + 2 + 2)],
)
def test_a_late_race_is_of_the_leading(
    deadline: float,
    raced: int,
    checked: list[list[int]],
    spent: int,
    monkeypatch: pytest.MonkeyPatch,
):
    scene = Scene(monkeypatch, TIMES)
    clock = Late(monkeypatch, scene)
    assert winner(scene.run(40, top_k=2, deadline=deadline, climbing_rounds=0)) == "plan 0"
    assert len(scene.rounds[0][1]) == 2 + raced  # with the baselines
    assert [numbers for stage, numbers in scene.check.asked if stage == "remaining"] == checked
    assert clock.spent == spent


def test_plans_of_a_formula_that_rounding_spoils_come_last(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(monkeypatch, TIMES)
    Late(monkeypatch, scene)
    far = replace(WRONG, reason=reason(Code.WORSE_THAN_EAGER, "Y", "0.00282", "0.000123"))
    scene.check.verdicts["remaining"] = dict.fromkeys(range(10), far)
    monkeypatch.setattr(final_benchmark, "formula_of", lambda plan: number_of(plan) // 10)
    late = {"top_k": 2, "deadline": -1.0, "climbing_rounds": 0}
    assert winner(scene.run(40, **late)) == "plan 10"
    scene.check.verdicts["remaining"] = dict.fromkeys(range(40), far)
    assert winner(scene.run(10, **late)) == "compile"
    checked = [n for stage, n in scene.check.asked if stage == "remaining"]
    assert checked == [[0], [1], [10], [0], [1], [2]]


def test_a_wrong_leader_is_followed_by_the_next_one(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(monkeypatch, TIMES)
    Late(monkeypatch, scene)
    scene.check.verdicts["remaining"] = {0: WRONG}
    assert winner(scene.run(40, top_k=2, deadline=-1.0, climbing_rounds=0)) == "plan 1"
    assert [n for stage, n in scene.check.asked if stage == "remaining"] == [[0], [1]]
