"""Operators of a kernel up to a tensor: shared ones count once, leaves never."""

from __future__ import annotations

from mirage_py.search.closure.pool import Alternative, OperatorCount

LOAD = Alternative("load")


def counted(most, *ways):
    count = OperatorCount(most)
    for number, way in enumerate(ways):
        count.note(number, way)
    return count


def test_a_shared_tensor_counts_once():
    exp, row_sum = Alternative("exp", (0,)), Alternative("sum", (1,), ("n",))
    count = counted(9, LOAD, exp, row_sum, Alternative("div", (1, 2)))
    assert [count.least(n) for n in range(4)] == [0, 1, 2, 3]


def test_a_shorter_way_is_taken_in_and_a_longer_one_is_not():
    count = counted(9, LOAD, Alternative("exp", (0,)), Alternative("exp", (1,)))
    assert not count.note(1, Alternative("neg", (2,)))
    assert count.note(2, Alternative("abs", (0,)))
    assert count.least(2) == 1


def test_beyond_the_bound_nothing_is_allowed():
    count = counted(1, LOAD, Alternative("exp", (0,)))
    assert count.allows(Alternative("neg", (0,)))
    assert not count.allows(Alternative("neg", (1,)))
    assert count.allows(LOAD)
    assert [count.is_full(0), count.is_full(1)] == [False, True]


def test_without_a_bound_everything_is_allowed():
    count = counted(None, LOAD, Alternative("exp", (0,)))
    assert count.allows(Alternative("neg", (1,)))
    assert not count.is_full(1)
    assert count.least(1) == 0
