from __future__ import annotations

import pytest

from mirage_py.reasons import Code, reason
from mirage_py.search.closure.pool import PoolTensor
from mirage_py.search.closure.rules import RefusedError, joint_loop, joint_stage, may_be_built


def tensor(dims, looped=None, stage=0):
    return PoolTensor(0, looped, tuple(dims), stage)


def test_what_is_not_looped_stays_outside():
    assert joint_loop([tensor("b"), tensor("bn")]) is None


def test_a_looped_tensor_draws_the_others_into_its_loop():
    assert joint_loop([tensor("b"), tensor("bd", "d")]) == "d"


def test_loops_over_different_dimensions_do_not_meet():
    with pytest.raises(RefusedError) as refused:
        joint_loop([tensor("bk", "k"), tensor("bd", "d")])
    assert refused.value.rule == reason(Code.TWO_LOOPS)


def test_a_tile_does_not_meet_the_whole_of_its_dimension():
    with pytest.raises(RefusedError) as refused:
        joint_loop([tensor("bd"), tensor("bd", "d")])
    assert refused.value.rule == reason(Code.WHOLE_AND_TILE)


@pytest.mark.parametrize(
    ("operands", "loop", "stage"),
    [
        ([tensor("b", None, 1), tensor("b", None, 2)], None, 2),
        ([tensor("b", None, 0), tensor("bd", "d", 1)], "d", 1),
        ([tensor("b", None, 1), tensor("bd", "d", 1)], "d", 2),
        ([tensor("bd", "d", 1), tensor("bd", "d", 2)], "d", 2),
    ],
)
def test_stage(operands, loop, stage):
    assert joint_stage(operands, loop, 3) == stage


def test_too_many_loops():
    with pytest.raises(RefusedError) as refused:
        joint_stage([tensor("b", None, 3), tensor("bd", "d", 1)], "d", 3)
    assert refused.value.rule == reason(Code.MAX_LOOPS, 3)


def test_a_product_is_built_if_it_is_no_larger_than_an_operand_or_a_node():
    assert may_be_built([tensor("bd"), tensor("d")], ())
    assert not may_be_built([tensor("bd"), tensor("dn")], (frozenset("bn"),))
    assert may_be_built([tensor("b"), tensor("n")], (frozenset("bn"),))
