"""A coincidence of one draw: seen in the second field, and gone in the next draw."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.search import programs
from unit.search.kernels import FACTORED

from mirage_py.reasons import Code, reason
from mirage_py.search.closure import closure
from mirage_py.search.closure.closure import Closure
from mirage_py.search.enumerate import jobs
from mirage_py.search.enumerate.draws import Draw
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.task import Outcome
from mirage_py.search.space.spaces import Configuration
from mirage_py.ugraph.field import FIELDS


def normalised():
    """x / sum(x^2) @ W: every kind of kernel, a library call at the end among them."""
    s = programs.Spec("normalised", b=16, d=64, n=64)
    x = s.load("X", "bd")
    total = s.b.sum(s.b.apply("square", x), "d")
    s.output("Y", s.contract(s.b.apply("div", x, total), s.load("W", "dn"), "d"), "bn")
    return s.b.build()


def forget():
    """What the jobs of a search share is not to outlive a test that tampers with it."""
    jobs._draw.cache_clear()
    jobs._two_kernels.cache_clear()


@pytest.fixture
def coincidence(monkeypatch):
    """In the first draws of every job a square looks like what is squared.

    A pool in which two tensors agree has one tensor, made in the cheaper of the two ways.
    """
    honest_init, honest_close = Draw.__init__, Draw.close

    def inject(draws):
        def init(self, task, seed, *, skip_divisions):
            honest_init(self, task, seed, skip_divisions=skip_divisions)
            self.is_fooled = seed < draws

        def close(self, *args, **kwargs):
            pool = honest_close(self, *args, **kwargs)
            if self.is_fooled:
                for tensor in pool.tensors:
                    for way in tensor.alternatives[:]:
                        if way.op == "square":
                            tensor.alternatives[:] = pool[way.args[0]].alternatives
            return pool

        monkeypatch.setattr(Draw, "__init__", init)
        monkeypatch.setattr(Draw, "close", close)
        forget()

    yield inject
    forget()


def digests(result):
    return [f.ugraph.digest for f in result.families]


def test_another_draw_is_made_where_one_shows_a_coincidence(coincidence):
    honest = search(normalised(), limits=FACTORED)
    coincidence(1)
    result = search(normalised(), limits=FACTORED)
    assert digests(result) == digests(honest)
    assert result.reasons == honest.reasons == ()
    assert result.counters == honest.counters


def test_what_coincides_in_every_draw_is_refuted_and_told(coincidence):
    coincidence(99)
    result = search(normalised(), limits=FACTORED)
    assert result.families == ()
    for where in ("no loop", "loop over d", "two kernels, no loop", "library call at the end"):
        assert any(r.code is Code.REFUTED and r.data[0] == where for r in result.reasons), where


def test_no_other_draw_is_made_when_time_is_up(coincidence):
    coincidence(99)
    setting = jobs.Setting(normalised(), 0, FACTORED)
    job = next(jobs.jobs_of(setting))
    asked = 0

    def stop():
        nonlocal asked
        asked += 1
        return asked > 2  # after a derivation of the first draw has been refuted

    outcome = jobs.run(setting, job, stop)
    assert outcome.stopped
    assert outcome.refuted
    assert jobs._draw.cache_info().currsize == 1


def test_the_checks_are_in_another_field_at_other_sizes():
    setting = jobs.Setting(programs.causal_attention(), 0, FACTORED)
    drawn = Draw(jobs.task_of(setting, "factored", None), 0, skip_divisions=False)
    assert drawn.values._ops.field == FIELDS[0]
    assert len(drawn.checks) == 2  # a mask is made of pieces: short rows as well
    for values, targets in drawn.checks:
        assert values._ops.field == FIELDS[1]
        assert values.space.tiles != drawn.values.space.tiles
        assert len(targets) == 1


def test_an_outcome_is_fresh_for_every_job():
    setting = jobs.Setting(programs.row_softmax(), 0, FACTORED)
    drawn = Draw(jobs.task_of(setting, "factored", None), 0, skip_divisions=False)
    first = drawn.begin(lambda: False)
    drawn.close(Configuration())
    assert first.counter.configurations == 1
    second = drawn.begin(lambda: True)
    assert second.counter.configurations == 0
    assert drawn.stopped()
    assert second.stopped
    assert not second.exhausted
    assert not first.stopped


def test_what_is_hidden_is_not_read():
    setting = jobs.Setting(programs.rmsnorm_matmul(), 0, FACTORED)
    drawn = Draw(jobs.task_of(setting, "factored", None), 0, skip_divisions=False)
    pool = drawn.close(Configuration(), hidden=("n",))
    loads = {str(way.attr) for t in pool.tensors for way in t.alternatives if way.op == "load"}
    assert loads == {"X[b, d]", "G[d]"}


def test_outcomes_are_merged_in_order():
    found = search(programs.row_softmax(), limits=FACTORED).families
    one, other = Outcome(), Outcome()
    one.add(found[1])
    one.give_up(reason(Code.EXTRACTION_CUT, "no loop"))
    other.add(found[0])
    other.add(found[1])
    other.refuted, other.stopped = 2, True
    one.merge(other)
    assert [*one.families.values()] == [found[1], found[0]]
    assert one.reasons == [reason(Code.EXTRACTION_CUT, "no loop")]
    assert (one.refuted, one.exhausted, one.stopped) == (2, False, True)


def test_a_pool_is_closed_once_for_kernels_alone_and_first_of_two(monkeypatch):
    closed = []
    run = Closure.run
    monkeypatch.setattr(
        Closure, "run", lambda self, *stop: [closed.append(self), run(self, *stop)][1]
    )
    setting = jobs.Setting(programs.layernorm_linear(), 0, FACTORED)
    drawn = Draw(jobs.task_of(setting, "factored", None), 0, skip_divisions=False)
    counts = []
    for _ in range(2):
        outcome = drawn.begin(lambda: False)
        pool = drawn.close(Configuration(("d",)))
        counted = outcome.counter.freeze()
        counts.append((counted.candidates, counted.evaluations, counted.tensors, counted.merged))
    assert len(closed) == 1
    assert counts[0] == counts[1]
    assert counted.tensors == len(pool) > 20
    drawn.close(Configuration(("d",)), hidden=("n",))
    assert len(closed) == 2


def test_a_pool_of_large_values_is_bounded_by_their_elements(monkeypatch):
    """6,500 values of six dimensions took 8 GB."""
    monkeypatch.setattr(closure, "_MOST_ELEMENTS", 60)
    forget()
    try:
        result = search(normalised(), limits=FACTORED)
    finally:
        forget()
    assert not result.exhausted
    cut = [r for r in result.reasons if r.code is Code.POOL_OUTGREW]
    assert cut
    assert all(0 < int(r.data[0]) < FACTORED.max_tensors for r in cut)


def test_of_too_many_candidates_the_likely_ones_stay():
    whole = search(programs.attention(), limits=FACTORED)
    result = search(programs.attention(), limits=replace(FACTORED, max_intermediates=3))
    cut = [r for r in result.reasons if r.code is Code.INTERMEDIATES_CUT]
    assert cut
    assert all(int(r.data[0]) == 3 < int(r.data[1]) for r in cut)
    assert result.rings[0].cut_by == ("max_intermediates",)
    assert {f.ugraph.digest for f in result.families} < {f.ugraph.digest for f in whole.families}
    # What the program itself computes is among them: the logits, and what they are divided by.
    assert {f.kind for f in result.families} == {f.kind for f in whole.families}
