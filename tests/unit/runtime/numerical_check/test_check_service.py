"""The worker of the numerical check, with a runner that is not a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from plans import two_kernel_plan

from mirage_py.reasons import Code, Reason
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.numerical_check import check_service, input_store, judge
from mirage_py.runtime.numerical_check.check_pool import Trial, _trial
from mirage_py.runtime.numerical_check.check_service import check_plan, prepare
from mirage_py.runtime.numerical_check.input_store import RANDOM, InputStore
from mirage_py.runtime.process.worker_process import Reply
from mirage_py.runtime.timing.timing import MAX_SETS, Timed
from mirage_py.runtime.tune.measured import Candidate, float_source
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import dump_text
from mirage_py.verify.numerical_check.input_sets import SET_NAMES
from mirage_py.verify.numerical_check.numerical_check import MAX_REFERENCE_WORK

PLAN = two_kernel_plan()
PROGRAM = PLAN.ugraph.program


class Runner:
    """Computes in Triton's interpreter, and does to inputs and outputs what a test wants."""

    scale = 1.0
    writes_input = False

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def run_poisoned(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = run_interpreted(self.plan, {"X": x.double().numpy()})["Y"]
        if self.writes_input:
            x += 1
        return (torch.from_numpy(y * self.scale).half(),)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("check_plan")
    common = {"folder": str(folder), "program": dump_text(PROGRAM), "device": "cpu"}
    bounds = {"max_work": MAX_REFERENCE_WORK, "threads": 1, "deadline": None}
    prepare({**common, **bounds, "seed": 3, "sets": SET_NAMES[:2]})
    return {**common, "plan": dump_text(PLAN), "sets": list(SET_NAMES[:2])}


@pytest.fixture
def timed_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many input sets each timing ran on."""
    sets: list[int] = []

    def clock(entries, count, *, reps, seconds):
        sets.append(count)
        for entry in entries.values():
            for number in range(count):
                entry(number)
        return {name: Timed(5.0, 4.0, 6.0, reps) for name in entries}

    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(check_service, "PlanRunner", Runner)
    monkeypatch.setattr(check_service, "time_interleaved", clock)
    monkeypatch.setattr(input_store, "rotation_sets", lambda *_: 3)
    return sets


def asked(task: dict[str, Any], **more: Any) -> Trial:
    """As the parent sees it: through JSON."""
    value = json.loads(json.dumps(check_plan({**task, **more})))
    return _trial(Reply("done", value))


def test_a_right_plan_is_judged_and_timed(task: dict[str, Any], timed_on: list[int]) -> None:
    trial = asked(task, reps=3, l2_bytes=1 << 20)
    assert trial.evidence is not None
    assert trial.evidence.passed
    assert trial.evidence.eager_rel_error is not None
    assert trial.time == Timed(5.0, 4.0, 6.0, 3)
    assert timed_on == [3]


def test_a_first_timing_leaves_most_of_many_sets_out(
    task: dict[str, Any], timed_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rotated(folder: Path, program: Program, *_: Any) -> list[tuple[torch.Tensor, ...]]:
        return [InputStore(folder, program).inputs(RANDOM, torch.device("cpu"))] * MAX_SETS

    monkeypatch.setattr(check_service, "_rotated", rotated)
    asked(task, reps=3, l2_bytes=1 << 40)
    assert timed_on == [MAX_SETS // 4]


def test_without_replays_nothing_is_timed(task: dict[str, Any], timed_on: list[int]) -> None:
    trial = asked(task)
    assert trial.evidence is not None
    assert trial.evidence.passed
    assert trial.time is None
    assert timed_on == []


def test_a_wrong_plan_is_not_timed(
    task: dict[str, Any], timed_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "scale", 1.5)
    trial = asked(task, reps=3, l2_bytes=1 << 20)
    assert trial.evidence is not None
    assert not trial.evidence.passed
    assert str(trial.evidence.reason).startswith("random inputs: Y[")
    assert trial.time is None
    assert timed_on == []


def test_a_plan_that_writes_to_its_input(
    task: dict[str, Any], timed_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "writes_input", True)
    trial = asked(task, reps=3, l2_bytes=1 << 20)
    assert trial.evidence is not None
    assert trial.evidence.reason == Reason(Code.WRITES_TO_INPUT, ("X",), "random inputs")
    monkeypatch.setattr(Runner, "writes_input", False)
    # The next candidate gets the inputs as they were.
    assert asked(task).evidence == asked(task).evidence
    again = asked(task).evidence
    assert again is not None
    assert again.passed


def test_what_was_skipped_or_crashed() -> None:
    assert _trial(Reply("skipped", reason="late")) == Trial(skipped=True)
    crashed = _trial(Reply("crash", reason="its process ended by SIGSEGV"))
    assert crashed.evidence is not None
    assert crashed.evidence.reason == Reason(
        Code.CRASHED, ("its process ended by SIGSEGV",), "it did not run"
    )
    assert crashed.time is None


def test_files_are_where_another_worker_looks(task: dict[str, Any]) -> None:
    found = sorted(p.name for p in Path(task["folder"]).iterdir())
    assert found == ["large", "random"]


class Restless(Runner):
    """Its results move a little from launch to launch."""

    launches = 0

    def run_poisoned(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (y,) = super().run_poisoned(x)
        Restless.launches += 1
        y.view(-1)[Restless.launches % 3] *= 1 + 2.0**-10
        return (y,)


def test_two_launches_that_differ_are_a_race(
    task: dict[str, Any], timed_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_service, "PlanRunner", Restless)
    found = asked(task, reps=3, l2_bytes=1 << 20)
    assert found.evidence is not None
    assert not found.evidence.passed
    assert found.evidence.reason.code is Code.RACE
    assert found.time is None


def test_the_spread_of_atomic_additions_is_told(
    task: dict[str, Any], timed_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_service, "PlanRunner", Restless)
    for module in (check_service, check_service):
        monkeypatch.setattr(module, "adds_atomically", lambda _: True)
    found = asked(task)
    assert found.evidence is not None
    assert found.evidence.passed, found.evidence.reason
    assert found.evidence.spread is not None
    assert 0 < found.evidence.spread < 1e-3
    candidate = Candidate("plan", PLAN)
    candidate.judged(found.evidence)
    candidate.judged(replace(found.evidence, spread=None, max_rel_error=1.0))
    assert candidate.measured().spread == found.evidence.spread
    assert "repeated runs are" in float_source(candidate.measured(), "h200")


def test_equal_results_have_no_spread(task: dict[str, Any], timed_on: list[int]) -> None:
    found = asked(task).evidence
    assert found is not None
    assert found.spread == 0.0
    assert float_source(Candidate("plan", PLAN).measured(), "h200") == "h200, full size"


@pytest.mark.parametrize(
    ("one", "other", "far"),
    [
        ([1.0, float("nan")], [1.0, float("nan")], 0.0),
        ([3.0, 4.0], [3.0, 4.5], 0.1),
        ([1.0, 0.0], [1.0, -0.0], 2.0**-149),
        ([1.0, 2.0], [1.0, float("inf")], float("inf")),
    ],
)
def test_how_far_two_results_are_apart(one, other, far, monkeypatch: pytest.MonkeyPatch):
    a, b = (torch.tensor(x) for x in (one, other))
    assert check_service.spread_of(PLAN, [a], lambda: [b]) == far
    # In pieces, as giant ones are compared.
    monkeypatch.setattr(judge, "_AT_A_TIME", 1)
    assert check_service.spread_of(PLAN, [a], lambda: [b]) == pytest.approx(far, rel=1e-15)
    assert judge.agree(a, a.clone(), 0.0)
    assert judge.agree(a, b, 1e-3) == (far == 0.0 or far == 2.0**-149)
