"""Errors are those of both ends of an operand, at one spread and at four, whatever is quicker."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32
from mirage_py.verify.evaluate.element_types import underflow_step
from mirage_py.verify.numerical_check.carried_error import carried_error
from mirage_py.verify.numerical_check.float_case import SPREAD
from mirage_py.verify.numerical_check.rounding_error import Rounded, RoundingMeaning

OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "maximum": np.maximum,
}


def by_all_ends(op, x, y):
    """Of two operands with errors, one after the other; a factor of the first one's error, which
    is the second operand, is at its worse end too. Maxima are exact.
    """
    apply = OPERATORS[op]
    with np.errstate(all="ignore"):
        value = apply(x.value, y.value)
        units = {"maximum": 0.0, "div": 4.0}.get(op, 1.0)
        error = units * F32.unit_roundoff * np.abs(value)
        error = np.where(np.isinf(value), 0.0, error)
        for of_x, of_y in ((1, 0), (0, 1)):
            found = 0.0
            for spreads in (1.0, -1.0, SPREAD, -SPREAD):
                end_x, end_y = (
                    x.value + spreads * of_x * x.error,
                    y.value + spreads * of_y * y.error,
                )
                moved = apply(end_x, end_y)
                distance = np.where(moved == value, 0.0, np.abs(moved - value))
                found = np.fmax(found, distance / max(1.0, abs(spreads)))
            error = np.hypot(error, found)
    return value, error


@pytest.mark.parametrize("op", sorted(OPERATORS))
@pytest.mark.parametrize("special", [None, np.inf, np.nan, 0.0, 1e-300, 1e200])
def test_an_operator_on_two_operands(op: str, special: float | None):
    draw = np.random.default_rng(0)
    x, y = (
        Rounded(draw.normal(size=(40, 5)), draw.uniform(1e-8, 1e-6, size=(40, 5))) for _ in range(2)
    )
    if special is not None:
        x.value[3, 1] = y.value[5, 2] = special
    found = RoundingMeaning(F32.unit_roundoff).apply(op, None, [x, y])
    value, error = by_all_ends(op, x, y)
    assert np.array_equal(found.value, value, equal_nan=True)
    absorbed = np.isfinite(value) & (np.abs(value) > 1e100) & (op in ("add", "sub"))
    assert absorbed.sum() == (2 if special == 1e200 and op in ("add", "sub") else 0)
    assert (found.error[absorbed] < 1e-5).all()
    error = np.where(absorbed, found.error, error)
    assert np.allclose(found.error, error, rtol=1e-3, atol=1e-30, equal_nan=True)


FLOATS = FloatMeaning()


def carried(op, values, errors, place=0):
    values = [np.asarray(v, np.float64) for v in values]
    errors = [None if e is None else np.asarray(e, np.float64) for e in errors]
    return carried_error(op, values, errors, place, FLOATS.apply(op, None, values))


@pytest.mark.parametrize("op", ["exp", "silu", "sigmoid", "gelu", "sqrt", "square", "relu", "tanh"])
@pytest.mark.parametrize("size", [1e-6, 0.01, 0.5, 3.0])
def test_four_spreads_of_an_operand_stay_within_four_of_the_result(op: str, size: float):
    x = np.linspace(-8.0, 8.0, 401)
    value = FLOATS.apply(op, None, [x])
    allowed = SPREAD * carried(op, [x], [np.full_like(x, size)])
    for spreads in (1.0, -1.0, SPREAD, -SPREAD):
        end = FLOATS.apply(op, None, [x + spreads * size])
        with np.errstate(invalid="ignore"):
            moved = np.abs(end - value)
        # At its lowest point a function moves by the square of a small error.
        assert (~(moved > 1.05 * allowed + 0.05 * size)).all()


def test_a_sum_whose_sign_is_rounding_may_pass_through_silu_or_not():
    # One spread leaves it negative: silu gives 0 at both of its ends, and 2e10 three spreads on.
    (error,) = carried("silu", [[-1e10]], [[0.9e10]])
    assert SPREAD * error == pytest.approx(2.6e10)
    # Five spreads away nothing comes through.
    assert carried("silu", [[-1e10]], [[0.2e10]]) == [0.0]


def test_a_product_of_what_is_all_error():
    errors = [carried("mul", [[0.0], [0.0]], [[2.0], [3.0]], place) for place in (0, 1)]
    assert SPREAD * errors[0] == [8.0 * 12.0]
    assert errors[1] == [0.0]


def test_a_divisor_near_zero_takes_the_numerators_error_along():
    assert carried("div", [[0.0], [10.0]], [[1.0], [2.0]]) == [0.5]
    assert carried("div", [[0.0], [10.0]], [[1.0], [100.0]]) == [0.1]


def test_what_overflows_for_sure_is_told_from_what_may():
    rounding = RoundingMeaning(F32.unit_roundoff)
    x = Rounded(np.array([-2000.0, -2000.0, 3.0]), np.array([10.0, 900.0, 1e-6]))
    grown = rounding.apply("exp", None, [rounding.apply("neg", None, [x])])
    assert grown.value[0] == grown.value[1] == np.inf
    assert (grown.error[0], grown.error[1]) == (0.0, np.inf)
    # silu written out: 0 in the first place, 0 or 1600 in the second.
    found = rounding.apply(
        "div", None, [x, rounding.apply("add", None, [rounding.const(1), grown])]
    )
    assert found.value[0] == found.value[1] == 0.0
    assert (found.error[0], found.error[1]) == (0.0, np.inf)
    assert found.error[2] < 1e-5
    total = rounding.sum(Rounded(grown.value, np.zeros(3)), (0,))
    assert (total.value[0], total.error[0]) == (np.inf, 0.0)
    assert rounding.sum(grown, (0,)).error == [np.inf]


def test_tensor_cores_cut_sums_off():
    # Each addition loses half a place on average, all to one side; float32 products do not.
    draw = np.random.default_rng(0)
    n = 28672
    a, b = (Rounded(draw.normal(size=s), is_input=True) for s in ((4, n, 1), (1, n, 4)))
    spread = np.sqrt((a.value**2 * b.value**2).sum(1, keepdims=True))
    for roundoff, least, most in ((BF16.unit_roundoff, 800, 2500), (F32.unit_roundoff, 169, 700)):
        error = RoundingMeaning(roundoff).contract(a, b, (1,)).error
        places = error / spread / F32.unit_roundoff
        assert (places > least).all()
        assert np.median(places) < most


def test_reciprocals_of_large_numbers_are_flushed():
    meaning = RoundingMeaning(BF16.unit_roundoff)
    # exp(87.5) is above 2^126: a GPU takes silu(-87.5) = -8.8e-37 for 0.
    gate = meaning.apply("silu", None, (Rounded(np.array([-87.5, -80.0, 3.0])),))
    assert gate.error[0] > abs(gate.value[0])
    assert gate.error[1] < 1e-2 * abs(gate.value[1])
    assert gate.error[2] < 1e-5
    # What is infinite stays infinite for sure.
    with np.errstate(all="ignore"):
        quotient = meaning.apply("div", None, (Rounded(np.ones(1)), Rounded(np.zeros(1))))
    assert np.isinf(quotient.value[0])
    assert quotient.error[0] == 0


@pytest.mark.parametrize(("largest", "times"), [(-8.0, 8.0), (0.25, 1.0)])
def test_a_product_with_a_gain_may_be_divided_by_its_largest_magnitude(largest, times):
    """So it stays in range, and what is subnormal then loses as many times its last place."""
    meaning = RoundingMeaning(F16.unit_roundoff, underflow_step(F16))
    tiny, gain, ones = np.full((2, 64), 2.0**-18), np.ones((1, 64)), np.ones((1, 64))
    gain *= largest

    def error(x, g):
        product = meaning.apply("mul", None, [Rounded(x), Rounded(g)])
        return meaning.contract(product, Rounded(ones), (1,)).error

    # The same products without a gain that is divided.
    np.testing.assert_allclose(error(tiny, gain), times * error(tiny * gain, ones), rtol=1e-3)


def test_counts_are_exact():
    """A sum of truth values is the same in any order; one of numbers is not."""
    meaning = RoundingMeaning(F32.unit_roundoff)
    x = Rounded(np.random.default_rng(0).standard_normal((9, 40)))
    truths = meaning.apply("gt", None, [x, meaning.const(0.1)])
    assert meaning.sum(truths, (1,)).error is None
    assert meaning.sum(x, (1,)).error is not None
    assert meaning.sum(Rounded(np.full((2, 3), 2.0**23)), (1,)).error is not None
