"""Tunings in which the GPU's memory is short."""

from __future__ import annotations

import pytest
import torch
from unit.runtime.numerical_check.test_check_pool import Worker
from unit.runtime.tune.scene import BASE, PROGRAM, Scene, numbered, winner

from mirage_py.cache.cached_results import is_late
from mirage_py.errors import InputError
from mirage_py.pipeline.selection.record import race_record
from mirage_py.runtime.numerical_check import check_pool
from mirage_py.runtime.numerical_check.check_pool import NumericalCheck
from mirage_py.runtime.process.worker_process import Reply, Task
from mirage_py.runtime.tune import tuner
from mirage_py.targets import H200


def short_of_memory(scene: Scene, times: int) -> None:
    """torch.compile finds no memory in its check, so many times."""
    left = [times]

    def taken(name: str) -> None:
        if name == "compile" and left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")

    scene.check.before_function = taken


def test_a_baseline_that_found_no_memory_has_another_try(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(monkeypatch, BASE)
    short_of_memory(scene, 1)
    report = scene.run(0)
    assert scene.check.rooms_made == 1
    assert winner(report) == "compile"
    assert report.late == ()


def test_where_torch_compile_finds_no_memory_at_all_the_verdict_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
):
    """Found on an H200: eager served at 0.39x of a torch.compile that had fallen for 2 MiB."""
    scene = Scene(monkeypatch, BASE)
    short_of_memory(scene, 2)
    report = scene.run(0)
    assert winner(report) == "eager"
    assert report.late == ("compile",)
    assert is_late({"record": race_record(report)})


def test_what_fails_otherwise_is_not_tried_again(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(monkeypatch, BASE)

    def broken(name: str) -> None:
        raise ValueError(name)

    scene.check.before_function = broken
    report = scene.run(0)
    assert (scene.check.rooms_made, report.late) == (0, ())


class Short(Worker):
    """Candidates with even numbers find memory only after the workers have given theirs back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.forgot = 0

    def answer(self, place: int, task: Task, timeout_s: float) -> Reply:
        self.forgot += task["service"] == "forget_check"
        reply = super().answer(place, task, timeout_s)
        number = self.checked[-1] if task["service"] == "numerical_check" else 1
        if number % 2 == 0 and not self.forgot:
            return Reply("error", reason="OutOfMemoryError: CUDA out of memory.")
        return reply


@pytest.mark.parametrize("stage", ["first", "remaining"])
def test_a_candidate_that_found_no_memory_has_another_try(
    monkeypatch: pytest.MonkeyPatch, stage: str
):
    worker = Short(monkeypatch)
    plans = [numbered(n) for n in (1, 2, 3)]
    with NumericalCheck(PROGRAM, seed=0, device=0) as check:
        if stage == "first":
            found = [t.evidence for t in check.first(plans, l2_bytes=1, reps=3)]
        else:
            found = [*check.remaining(plans)]
        assert worker.forgot == 1
    assert all(evidence is not None and evidence.passed for evidence in found)
    assert worker.checked == [1, 2, 3, 2]


def test_workers_hold_nothing_of_a_large_program_while_this_process_times(
    monkeypatch: pytest.MonkeyPatch,
):
    worker = Short(monkeypatch)
    monkeypatch.setattr(check_pool, "_LARGE_BYTES", 1)
    with NumericalCheck(PROGRAM, seed=0, device=0) as check:
        check.first([numbered(1)], l2_bytes=1, reps=3)
        assert worker.forgot == 1
        check.remaining([numbered(1)])
        assert worker.forgot == 2
        check.remaining([])
        assert worker.forgot == 2


def test_after_a_tuning_its_memory_is_given_back(monkeypatch: pytest.MonkeyPatch):
    """Once nothing of it is held any more, in whichever way it ends."""
    given: list[int] = []
    monkeypatch.setattr(tuner, "give_back", given.append)
    with pytest.raises(InputError):
        tuner.tune(PROGRAM, [], {}, target=H200)
    assert given == [tuner.MOST_IDLE_BYTES]
