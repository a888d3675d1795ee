from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps


@pytest.fixture(params=FIELDS, ids=["first", "second"])
def ops(request: pytest.FixtureRequest) -> FieldOps:
    return FieldOps(request.param, 11)


def test_comparisons_are_a_total_order(ops: FieldOps) -> None:
    x = ops.random((40,), "x")
    x = FieldArray(np.concatenate([x.p, [0, 0, 1, ops.field.p - 1]]), None)
    a, b = x[:, None], x[None, :]
    less, greater = ops.lt(a, b).p, ops.gt(a, b).p
    same = np.eye(len(x.p), dtype=np.int64)
    same[-4:-2, -4:-2] = 1
    assert (less + same + greater == 1).all()
    assert (less == greater.T).all()
    assert (ops.le(a, b).p == less + same).all()
    assert (ops.ge(a, b).p == greater + same).all()
    # A total order numbers its elements: how many are below tells who is below whom.
    below = less.sum(0)
    assert (less == (below[:, None] < below[None, :])).all()


def test_equality_holds_for_equals_and_for_some_others(ops: FieldOps) -> None:
    x, y = ops.random((40, 1), "x"), ops.random((1, 40), "y")
    equal = ops.eq(x, y).p
    assert 0.15 < equal.mean() < 0.35
    assert (ops.eq(x, x).p == 1).all()
    assert (ops.ne(x, y).p == 1 - equal).all()
    assert (ops.eq(y, x).p == equal).all()
    assert (ops.eq(ops.neg(x), ops.neg(y)).p == equal).all()
    moved = ops.random((), "shift")
    assert (ops.eq(ops.add(x, moved), ops.add(y, moved)).p == equal).all()
    assert (ops.eq(ops.sub(x, y), ops.constant(0)).p == equal).all()


def test_numbers_that_programs_write_down_are_equal_when_they_are_the_same(ops: FieldOps) -> None:
    numbers = np.concatenate([np.arange(-500, 500), np.arange(0, 1 << 23, 9999)])
    x = FieldArray(numbers % ops.field.p, None)
    assert (ops.eq(x[:, None], x[None, :]).p == (numbers[:, None] == numbers)).all()


def test_another_trial_has_other_equals() -> None:
    x, y = (FieldOps(FIELDS[0], 0).random((200,), name) for name in "xy")
    first, second = (FieldOps(FIELDS[0], seed).eq(x, y).p for seed in (1, 2))
    assert 0 < (first & second).sum() < min(first.sum(), second.sum())


def test_comparisons_give_bits_in_both_parts(ops: FieldOps) -> None:
    x, y = ops.random((50,), "x"), ops.exp(ops.random((50,), "y"))
    for operation in (ops.lt, ops.le, ops.gt, ops.ge, ops.eq, ops.ne):
        bits = operation(x, y)
        assert bits.q is not None
        assert (bits.p == bits.q).all()
        assert set(np.unique(bits.p)) <= {0, 1}


def test_the_q_part_goes_with_the_p_part(ops: FieldOps) -> None:
    x, y = ops.random((200,), "x"), ops.random((200,), "y")
    chosen = ops.maximum(x, y)
    assert chosen.q is not None
    from_x = chosen.p == x.p
    assert 50 < from_x.sum() < 150
    assert (chosen.q == np.where(from_x, x.q, y.q)).all()
    greatest = ops.max(x, 0)
    assert (greatest.p, greatest.q) in zip(x.p, x.q, strict=True)


def test_one_choice_for_both_parts_lets_the_exponential_pass(ops: FieldOps) -> None:
    x, y = ops.random((200,), "x"), ops.random((200,), "y")
    above = ops.gt(x, y)
    inside = ops.exp(ops.where(above, x, y))
    assert ops.equal(inside, ops.where(above, ops.exp(x), ops.exp(y)))
    assert ops.equal(inside, ops.exp(ops.maximum(x, y)))


def test_seed_decides_between_two_of_one_sign_and_never_the_sign() -> None:
    trials = [FieldOps(FIELDS[0], seed) for seed in range(40)]
    x, y = trials[0].random((100,), "x"), trials[0].random((100,), "y")
    opposite = trials[0].lt(trials[0].mul(x, y), trials[0].constant(0)).p == 1
    times_below = sum(trial.lt(x, y).p for trial in trials)
    assert 30 < opposite.sum() < 70
    assert set(np.unique(times_below[opposite])) == {0, 40}
    assert times_below[~opposite].min() > 5
    assert times_below[~opposite].max() < 35


def test_reductions(ops: FieldOps) -> None:
    x = ops.random((3, 4, 5), "x")
    for axes, keepdims, shape in [
        (0, False, (4, 5)),
        (1, True, (3, 1, 5)),
        ((0, 2), False, (4,)),
        ((0, 2), True, (1, 4, 1)),
        ((-1, -2, -3), False, ()),
    ]:
        greatest, least = ops.max(x, axes, keepdims), ops.min(x, axes, keepdims)
        assert greatest.shape == least.shape == shape
        assert ops.equal(least, ops.neg(ops.max(ops.neg(x), axes, keepdims)))
    one_by_one = x[:, 0]
    for i in range(1, 4):
        one_by_one = ops.maximum(one_by_one, x[:, i])
    assert ops.equal(ops.max(x, 1), one_by_one)
    assert ops.equal(ops.max(x, ()), x)
    assert ops.max(ops.exp(x), 0).q is None


class TestClamp:
    def test_is_min_of_max_when_the_bounds_are_in_order(self, ops: FieldOps) -> None:
        x = ops.random((300,), "x")
        low, high = ops.constant(-1), ops.constant(6)
        expected = ops.minimum(ops.maximum(x, low), high)
        assert ops.equal(ops.clamp(x, -1, 6.0), expected)
        assert ops.equal(ops.clamp(x, low, high), expected)

    def test_open_sides(self, ops: FieldOps) -> None:
        x = ops.random((300,), "x")
        assert ops.equal(ops.clamp(x, 0, None), ops.relu(x))
        assert ops.equal(ops.clamp(x, None, 0), ops.neg(ops.relu(ops.neg(x))))
        assert ops.clamp(x, None, None) is x

    @pytest.mark.parametrize("seed", range(6))
    def test_never_forgets_its_argument(self, seed: int) -> None:
        ops = FieldOps(FIELDS[0], seed)
        x = ops.random((20_000,), "x")
        clamped = ops.clamp(x, 2, 5)
        assert len(np.unique(clamped.p)) >= 2
        low, high = ops.constant(2), ops.constant(5)
        composed = ops.minimum(ops.maximum(x, low), high)
        assert ops.equal(clamped, composed) == ops.orders_truly([2, 5])


def test_orders_truly() -> None:
    truly = [FieldOps(FIELDS[0], seed).orders_truly([5, 2]) for seed in range(40)]
    assert 8 < sum(truly) < 32
    for seed in range(5):
        ops = FieldOps(FIELDS[0], seed)
        assert ops.orders_truly([])
        assert ops.orders_truly([6, 0, 0.0, -0.5])
        assert ops.orders_truly([Fraction(1, 17), -1e-6])


@pytest.mark.parametrize("value", [1, 2, 6, 0.5, 1e-6, 128, 4096, 14336, Fraction(1, 19)])
def test_constants_of_small_factors_are_positive(ops: FieldOps, value: float) -> None:
    constant = ops.constant(value)
    assert ops.gt(constant, ops.constant(0)).p == 1
    assert ops.equal(ops.sqrt(ops.square(constant)), constant)
    assert ops.equal(ops.square(ops.sqrt(constant)), constant)


def test_scalars_stay_arrays(ops: FieldOps) -> None:
    x = ops.constant(-3)
    for result in (
        ops.abs(x),
        ops.relu(x),
        ops.maximum(x, x),
        ops.minimum(x, x),
        ops.clamp(x, 1, 2),
        ops.lt(x, x),
        ops.eq(x, x),
        ops.max(ops.random((3,), "x"), 0),
        ops.min(x, ()),
    ):
        assert isinstance(result.p, np.ndarray)
        assert isinstance(result.q, np.ndarray)
        assert result.shape == ()
