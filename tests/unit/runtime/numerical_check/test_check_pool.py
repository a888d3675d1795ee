"""Checks that begin beside other work, and what becomes of them after the deadline."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from dataclasses import asdict, replace
from math import inf
from typing import Any

import pytest
import torch
from unit.runtime.tune.scene import PROGRAM, RIGHT, number_of, numbered, timed

import mirage_py
from mirage_py.runtime.numerical_check import check_pool
from mirage_py.runtime.numerical_check.check_pool import NumericalCheck
from mirage_py.runtime.numerical_check.input_store import InputStore
from mirage_py.runtime.process import executor
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply, Task
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import load_text
from mirage_py.verify.numerical_check.check_strength import plain_evidence, required
from mirage_py.verify.numerical_check.input_sets import set_names


class Worker:
    """Each check takes a second of a clock of its own; it waits for ``goes_on``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.checked: list[int] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        monkeypatch.setattr(WorkerPool, "ask", self.answer)
        monkeypatch.setattr(check_pool.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(executor.time, "monotonic", lambda: self.now)

    def answer(self, _place: int, task: Task, _timeout_s: float) -> Reply:
        if task["service"] == "prepare_check":
            return Reply("done", dict.fromkeys(task["sets"], (1.0, 0.0, False)))
        if task["service"] != "numerical_check":
            return Reply("done", "a GPU")
        plan: Any = load_text(task["plan"], "plan")
        assert isinstance(plan, Plan)
        assert self.goes_on.wait(600.0)
        self.now += 1.0
        self.checked.append(number_of(plan))
        return Reply(
            "done",
            {
                "evidence": plain_evidence(RIGHT),
                "time": asdict(timed(10.0 + number_of(plan), 3)),
            },
        )


def test_what_was_begun_is_not_done_again(monkeypatch: pytest.MonkeyPatch):
    worker = Worker(monkeypatch)
    plans = [numbered(n) for n in range(4)]
    with NumericalCheck(PROGRAM, seed=0, device=0) as check:
        check.begin(plans[2], l2_bytes=1, reps=3)
        check.begin(plans[0], l2_bytes=1, reps=3)
        trials = check.first(plans, l2_bytes=1, reps=3)
    assert all(t.evidence is not None and t.evidence.passed for t in trials)
    assert sorted(worker.checked) == [0, 1, 2, 3]


def test_what_was_begun_waits_no_longer_than_the_deadline(monkeypatch: pytest.MonkeyPatch):
    worker = Worker(monkeypatch)
    worker.goes_on.clear()
    plans = [numbered(n) for n in range(6)]
    with NumericalCheck(PROGRAM, seed=0, device=0) as check:
        for plan in plans[:5]:
            check.begin(plan, l2_bytes=1, reps=3)
        worker.now = 10.0
        worker.goes_on.set()
        trials = check.first(plans, l2_bytes=1, reps=3, deadline=5.0)
    # Two seconds are left for what has compiled, and what runs then comes to its end.
    done = [n for n, t in enumerate(trials) if not t.skipped]
    assert 2 <= len(done) < 6
    assert sorted(worker.checked) == done
    assert trials[5].skipped


@pytest.mark.parametrize(("before", "late"), [(16, 0), (4, 2)])
def test_after_the_deadline_a_few_are_tried_where_few_were_before(
    before: int, late: int, monkeypatch: pytest.MonkeyPatch
):
    worker = Worker(monkeypatch)
    plans = [numbered(n) for n in range(before + 6)]
    with NumericalCheck(PROGRAM, seed=0, device=0) as check:
        for plan in plans[:before]:
            check.begin(plan, l2_bytes=1, reps=3)
        wait(check._begun.values())
        assert check.waiting == 0
        assert check.timed == {plan: 10.0 + n for n, plan in enumerate(plans[:before])}
        trials = check.first(plans, l2_bytes=1, reps=3, deadline=worker.now - 1.0)
    # A trial takes a second: in a second and a half two begin.
    assert [t.skipped for t in trials] == [False] * (before + late) + [True] * (6 - late)
    assert len(worker.checked) == before + late


@pytest.mark.parametrize("is_part", [False, True])
def test_a_part_waits_for_no_reference_but_the_first_of_the_others(
    monkeypatch: pytest.MonkeyPatch, is_part: bool
):
    """They took up to 49 s for a part whose search took 16; all sets are for the whole program."""
    worker = Worker(monkeypatch)
    asked: list[list[str]] = []
    late = threading.Event()
    names = set_names(PROGRAM)

    def answer(_: WorkerPool, place: int, task: Task, timeout_s: float) -> Reply:
        if task["service"] == "numerical_check":
            asked.append(list(task["sets"]))
        if task["service"] == "prepare_check" and task["sets"] == [names[-1]]:
            assert late.wait(600.0)
        return worker.answer(place, task, timeout_s)

    monkeypatch.setattr(WorkerPool, "ask", answer)
    with NumericalCheck(PROGRAM, seed=0, device=0, is_part=is_part) as check:
        wait([check._references._futures[n] for n in names[:-1]])
        if not is_part:
            late.set()
        assert [e.passed for e in check.remaining([numbered(0)])] == [True]
        late.set()
    assert asked == [[*names[2:-1], *([] if is_part else names[-1:])]]


@pytest.mark.parametrize("off", [0.0, 1e-4, 0.1])
def test_where_float64_says_too_little_a_form_of_the_function_gives_what_eager_gives(
    monkeypatch: pytest.MonkeyPatch, off: float
):
    """Scores of a router: rounding decides which expert is the first, in eager PyTorch too."""
    Worker(monkeypatch)
    vague = replace(RIGHT, elements=8, evaluated=8, compared=8, telling=1)
    monkeypatch.setattr(check_pool.device_judge, "judge_there", lambda *_: vague)
    monkeypatch.setattr(InputStore, "inputs", lambda *_: (torch.tensor([0.0, 1.0, torch.inf]),))
    with NumericalCheck(PROGRAM, seed=0, device=0) as check:
        cpu = torch.device("cpu")
        alone = check.of_function(lambda x: x, None, cpu)
        beside = check.of_function(lambda x: (x * (1.0 + off),), lambda x: x, cpu)
    assert not required(alone).passed
    assert required(beside).passed == (off < 0.1)


@pytest.mark.parametrize("off", [0.15, 0.25])
def test_outputs_of_which_float64_says_nothing_may_be_as_far_from_eager_as_eager_from_it(
    monkeypatch: pytest.MonkeyPatch, off: float
):
    """Running statistics deep in a network: eager served ResNet-101 at twice the time."""
    Worker(monkeypatch)
    text = "N = 8\nX[N] : f32\nY[n] = X[n] + 1.0\nZ[n] = X[n] * 2.0"
    program = mirage_py.parse(text)
    of_one = replace(RIGHT, elements=8, evaluated=8, compared=8, telling=8)
    of_other = replace(of_one, telling=1, max_rel_error=0.1)
    both = replace(of_one, weak=("Z",), outputs=(of_one, of_other))
    monkeypatch.setattr(check_pool.device_judge, "judge_there", lambda *_: both)
    monkeypatch.setattr(InputStore, "inputs", lambda *_: (torch.linspace(1, 2, 8),))
    with NumericalCheck(program, seed=0, device=0) as check:
        found = check.of_function(
            lambda x: (x + 1.0, x * (2.0 + 2.0 * off)),
            lambda x: (x + 1.0, x * 2.0),
            torch.device("cpu"),
        )
    assert required(found).passed == (off < 0.2)


def test_how_far_tensors_are_apart():
    apart = check_pool.device_judge.apart
    one = torch.tensor([3.0, 4.0])
    assert apart(one, one) == 0.0
    assert apart(one * 1.25, one) == 0.25
    assert apart(one * torch.inf, one) == apart(one.half(), one) == apart(one, 0.0 * one) == inf


def test_forms_agree_in_every_type():
    agree = check_pool.device_judge.agree
    for dtype in (torch.bool, torch.int64, torch.float8_e4m3fn, torch.bfloat16):
        one, other = (torch.tensor([0, 1, n]).to(dtype) for n in (1, 0))
        assert agree((one, other), (one.clone(), other.clone()), 1e-3)
        assert not agree(one, other, 1e-3)
        assert not agree(one, one.float(), 1e-3)
