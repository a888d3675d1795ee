"""Kernels that are ranked elsewhere give the plans of a ranking in one process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal

import pytest
import several_kernels

from mirage_py.pipeline.pools import rank_pool
from mirage_py.pipeline.pools.rank_pool import RankPool
from mirage_py.runtime.process.worker_process import Reply
from mirage_py.runtime.worker_main.worker import serve
from mirage_py.search.rank.instance import Instance
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.rank.kernel_models import KernelModels
from mirage_py.search.rank.shortlist import Terms
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan

_PLANS = 40
# How often a ranking that is over asks for that, at least.
_LAST = 3
# At all numbers of splits: kernels that are alike.
FAMILIES = [several_kernels.ugraph("split_attention")]


class Worker:
    """An executor whose tasks are done here, as a worker does them, but those that are not to be
    ``done``. ``looked`` has for each kernel whose tilings were looked at whether it was in a task.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        done: Callable[[int], bool] = lambda _: True,
        change: Callable[[Any], Any] = lambda value: value,
        places: int = 8,
    ) -> None:
        self.places = places
        self.futures: list[Future[Reply]] = []
        self.tasks: list[dict[str, Any]] = []
        self.looked: list[bool] = []
        self._is_at_work = False
        self._done, self._change = done, change
        monkeypatch.setattr(rank_pool.WARM, "lent", self._lent)
        real = KernelModels._found

        def noted(models: KernelModels, *args: Any) -> Any:
            self.looked.append(self._is_at_work)
            return real(models, *args)

        monkeypatch.setattr(KernelModels, "_found", noted)

    def submit(self, task: dict[str, Any], timeout_s: float | None = None) -> Future[Reply]:
        del timeout_s
        self.tasks.append(task)
        self.futures.append(Future())
        number = len(self.tasks) - 1
        if self._done(number):
            self.finish(number)
        return self.futures[-1]

    def finish(self, first: int = 0) -> None:
        """Do the tasks from this number on."""
        for number in range(first, len(self.tasks)):
            replies: list[Any] = []
            self._is_at_work = True
            serve([json.dumps({**self.tasks[number], "number": number})], replies.append)
            self._is_at_work = False
            value = self._change(json.loads(json.dumps(replies[0]))["value"])
            self.futures[number].set_result(Reply("done", value))

    @contextlib.contextmanager
    def _lent(self, _: object) -> Iterator[Worker]:
        yield self


def ranked(backend: Literal["auto", "cuda", "triton"], terms: Terms) -> list[Instance]:
    return rank(FAMILIES, H200, _PLANS, backend, terms)


@pytest.fixture(scope="module")
def alone() -> list[Instance]:
    return ranked("auto", Terms())


@pytest.mark.parametrize("backend", ["auto", "triton"])
def test_plans_are_those_of_one_process(
    backend: Literal["auto", "triton"], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ranked(backend, Terms())
    worker = Worker(monkeypatch)
    assert ranked(backend, Terms(elsewhere=RankPool(H200))) == expected
    assert len(worker.looked) > 4
    # But for what fits nowhere.
    assert sum(worker.looked) > 0.8 * len(worker.looked)


def test_what_comes_late_or_never_is_ranked_here(
    alone: list[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, pool = Worker(monkeypatch, done=lambda number: number > 0), RankPool(H200)
    assert ranked("auto", Terms(elsewhere=pool)) == alone
    assert {*worker.looked} == {True, False}
    pool.end()
    assert [f.cancelled() for f in worker.futures] == [n == 0 for n in range(len(worker.futures))]


def test_what_was_looked_for_among_other_tiles_is_not_taken(
    alone: list[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fewer(value: list[Any]) -> list[Any]:
        """Of the first kernel, which the others follow, the worst tiles."""
        (_, first), *_ = value
        first["tiles"] = first["tiles"][-1:]
        first["among"] = first["tiles"]
        return value

    worker = Worker(monkeypatch, change=fewer)
    assert ranked("auto", Terms(elsewhere=RankPool(H200))) == alone
    assert False in worker.looked


def test_what_others_have_ranked_is_taken_however_late_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plans(terms: Terms) -> set[Plan]:
        return {i.plan for i in rank(FAMILIES, H200, 999, "cuda", terms)}

    late = Terms(late=lambda: True, over=lambda: True)
    by_itself = plans(late)
    worker = Worker(monkeypatch)
    found = plans(replace(late, elsewhere=RankPool(H200)))
    assert len(by_itself) < len(found)
    assert False not in worker.looked


def test_what_others_rank_meanwhile_takes_the_place_of_a_quick_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plans(worker: Worker) -> int:
        asked: list[None] = []

        def over() -> bool:
            asked.append(None)
            if len(asked) == _LAST:
                worker.finish()
            return True

        terms = Terms(late=lambda: True, over=over, elsewhere=RankPool(H200))
        found = rank(FAMILIES, H200, 999, "cuda", terms)
        assert len(asked) >= _LAST
        return len(found)

    never = plans(Worker(monkeypatch, done=lambda _: False, places=2))
    assert plans(Worker(monkeypatch, done=lambda _: False)) > never


def test_few_workers_are_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, pool = Worker(monkeypatch, places=2), RankPool(H200)
    pool.prepare()
    ranked("triton", Terms(elsewhere=pool))
    assert not worker.futures


def test_no_worker_knows_a_target_that_somebody_made() -> None:
    RankPool(replace(H200, name="mine")).end()
