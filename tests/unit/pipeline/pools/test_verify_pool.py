"""The field test in this process and in others finds the same."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from families import safe_families

from mirage_py.errors import UnsupportedError
from mirage_py.pipeline.pools import verify_pool
from mirage_py.runtime.process.executor import SEARCH
from mirage_py.runtime.process.warm_workers import WarmWorkers
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply
from mirage_py.search.enumerate.search import search
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.json_form import dump_text
from mirage_py.verify.field_test.field_test import FieldEvidence


@pytest.fixture(scope="module")
def softmax() -> Program:
    builder = ProgramBuilder("softmax")
    builder.dim("b", 8)
    builder.dim("n", 64)
    builder.input("X", (8, 64), F32)
    e = builder.apply("exp", builder.load("X", ["b", "n"]))
    builder.output("Y", builder.apply("div", e, builder.sum(e, ["n"])), ["b", "n"], F32)
    return builder.build()


@pytest.fixture(scope="module")
def families(softmax: Program) -> list[UGraph]:
    return list(safe_families(search(softmax, seed=0).families).ugraphs)[:4]


def test_other_processes_find_the_same(
    softmax: Program, families: list[UGraph], monkeypatch: pytest.MonkeyPatch
):
    here = list(verify_pool.findings(softmax, families, trials=2, seed=3))
    monkeypatch.setattr(verify_pool, "_WORTH_S", 0.0)
    with WorkerPool(2, SEARCH) as executor:
        found = verify_pool.findings(softmax, families, trials=2, seed=3, executor=executor)
        there = list(found)
    assert len(here) == len(families) > 2
    assert here == there
    assert all(isinstance(f, FieldEvidence) and f.equal and f.functions for _, f in here)


def test_what_was_begun_elsewhere_is_found_the_same(softmax: Program, families: list[UGraph]):
    here = dict(verify_pool.findings(softmax, families, trials=2, seed=3))
    with WorkerPool(4, SEARCH) as executor:
        begun = verify_pool.begin_findings(softmax, families, trials=2, seed=3, executor=executor)
        there = dict(verify_pool.findings(softmax, families, trials=2, seed=3, begun=begun))
    assert list(begun) == [f.digest for f in families[:2]]
    assert here == there


class Waiting:
    """An executor whose tasks are never begun."""

    places = 6

    def submit(self, task: dict[str, object]) -> Future[Reply]:
        del task
        return Future()


def test_half_of_the_places_test_families_at_a_time(
    softmax: Program, families: list[UGraph]
) -> None:
    def begin(some: list[UGraph], begun: verify_pool.Begun) -> verify_pool.Begun:
        return verify_pool.begin_findings(
            softmax, some, trials=2, seed=3, executor=Waiting(), begun=begun
        )

    a, b, c, d = families
    first = begin([a, b], {})
    both = begin([b, c, d], first)
    assert list(both) == [u.digest for u in (a, b, c)]
    assert all(both[digest] is future for digest, future in first.items())
    both[a.digest].set_result(Reply("crash", reason="killed"))
    assert list(begin([d], both)) == [u.digest for u in families]
    every = verify_pool.begin_findings(
        softmax, families, trials=2, seed=3, executor=Waiting(), share=verify_pool.IDLE_SHARE
    )
    assert list(every) == [u.digest for u in families]


def test_families_that_nobody_wants_any_more_are_not_begun(families: list[UGraph]) -> None:
    begun: verify_pool.Begun = {u.digest: Future() for u in families[:3]}
    kept = verify_pool.only(begun, [families[3], families[1]])
    assert kept == {families[1].digest: begun[families[1].digest]}
    assert [future.cancelled() for future in begun.values()] == [True, False, True]


def test_compilers_that_wait_test_families_and_are_given_back(
    softmax: Program, families: list[UGraph], monkeypatch: pytest.MonkeyPatch
):
    warm = WarmWorkers()
    monkeypatch.setattr(verify_pool, "WARM", warm)
    monkeypatch.setenv("MIRAGE_PY_WORKERS", "4")
    assert verify_pool.begin_by_compilers(softmax, families, 2, 3) == {}
    with WorkerPool(4, SEARCH) as pool:
        warm.keep(4, lambda: pool)
        begun = verify_pool.begin_by_compilers(softmax, families, 2, 3)
        assert list(begun) == [f.digest for f in families[:2]]
        assert all(future.result().done for future in begun.values())
        assert warm.take(4) is pool


class Elsewhere:
    """Tests of families elsewhere, which end when a clock says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, done: list[Reply], at_s: list[float]):
        self.now = 0.0
        self.ends = dict(zip(at_s, zip(self.futures(len(done)), done, strict=True), strict=True))
        monkeypatch.setattr(verify_pool.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(verify_pool, "wait", self.wait)

    def futures(self, count: int) -> list[Future[Reply]]:
        self.begun = [Future() for _ in range(count)]
        return self.begun

    def wait(self, _futures: list[Future[Reply]], seconds: float) -> None:
        self.now += seconds
        for at_s, (future, reply) in self.ends.items():
            if at_s <= self.now and not future.done():
                future.set_result(reply)


@pytest.mark.parametrize(
    ("at_s", "found", "until"), [([1.0, 4.4, 9.0], 2, 4.5), ([5.0, 9.0, 4.0], 2, 5.0)]
)
def test_at_the_deadline_what_is_done_elsewhere_is_kept(
    softmax: Program,
    families: list[UGraph],
    monkeypatch: pytest.MonkeyPatch,
    at_s: list[float],
    found: int,
    until: float,
):
    """The first family is waited for beyond it: without any all else would be in vain; others that
    have begun for a little. Those of split keys took three times as long as others, and all their
    plans were lost.
    """
    task = verify_pool._task(softmax, 2, 3)
    replies = [
        Reply("done", verify_pool.judge_family({**task, "family": dump_text(f)}))
        for f in families[:3]
    ]
    tests = Elsewhere(monkeypatch, replies, at_s)
    begun = {f.digest: future for f, future in zip(families, tests.begun, strict=False)}
    kept = list(
        verify_pool.findings(softmax, families, trials=2, seed=3, begun=begun, deadline=3.0)
    )
    assert len(kept) == found
    assert all(isinstance(f, FieldEvidence) and f.equal for _, f in kept)
    assert tests.now == pytest.approx(until, abs=0.2)


def test_a_family_whose_worker_died_is_tested_here(
    softmax: Program, families: list[UGraph], monkeypatch: pytest.MonkeyPatch
):
    tests = Elsewhere(monkeypatch, [Reply("crash", reason="killed")], [0.0])
    begun = {families[0].digest: tests.begun[0]}
    found = verify_pool.findings(softmax, families[:1], trials=2, seed=3, begun=begun)
    assert [family for family, _ in found] == families[:1]


def test_after_the_deadline_the_first_that_passes_is_enough(
    softmax: Program, families: list[UGraph]
):
    late = time.monotonic() - 1.0
    found = list(verify_pool.findings(softmax, families, trials=2, seed=3, deadline=late))
    assert len(found) == 1


def test_what_a_process_refuses_is_said_as_it_is_here():
    answer = {"refused": {"what": "a", "where": "b", "why": "c"}}
    found = verify_pool._finding(answer)
    assert isinstance(found, UnsupportedError)
    assert (found.what, found.where, found.why) == ("a", "b", "c")
