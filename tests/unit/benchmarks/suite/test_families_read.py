"""The choice of plans to measure from a file where there is no time for all."""

from __future__ import annotations

from dataclasses import replace

import several_kernels

from benchmarks.suite.families import Candidate, some_of_each


def candidates() -> list[Candidate]:
    """Six plans of one kind, one of another back end, and one that is far behind."""
    split, chain = several_kernels.plan("split_attention"), several_kernels.plan("library_prologue")
    near = [Candidate(split, 10.0 + n) for n in range(6)]
    others = [Candidate(replace(split, backend="cuda"), 15.5), Candidate(chain, 100.0)]
    return [*near, *others]


def test_others_than_the_best_kind_have_turns() -> None:
    kept = some_of_each(candidates(), 4)
    assert [c.predicted_us for c in kept] == [10.0, 11.0, 12.0, 15.5]


def test_what_is_far_behind_comes_last() -> None:
    assert [c.predicted_us for c in some_of_each(candidates(), 7)][-1] == 15.5
    assert len(some_of_each(candidates(), 8)) == 8


def test_no_more_than_there_are() -> None:
    assert some_of_each(candidates(), 100) == candidates()
    assert some_of_each(candidates(), 0) == []
