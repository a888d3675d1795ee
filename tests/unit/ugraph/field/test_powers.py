from __future__ import annotations

from fractions import Fraction

import pytest

from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.field.powers import WindowPlan, rational_exponent, window_plan

PRIMES = [m for field in FIELDS for m in (field.p, field.q)]


def exponent_of(plan: WindowPlan) -> int:
    exponent = plan.first_digit
    for squarings, digit in plan.steps:
        exponent = (exponent << squarings) + digit
    return exponent


@pytest.mark.parametrize("exponent", [*range(1, 300), 2**30, 2**30 - 1, *PRIMES])
def test_plan_gives_the_exponent(exponent: int) -> None:
    plan = window_plan(exponent)
    assert exponent_of(plan) == exponent
    assert plan.first_digit % 2 == 1
    assert all(digit == 0 or digit % 2 for _, digit in plan.steps)
    assert plan.largest_digit >= plan.first_digit


def test_plans_are_short() -> None:
    assert [window_plan(k).products for k in (1, 2, 3, 4, 8)] == [0, 1, 2, 2, 3]
    for m in PRIMES:
        square_and_multiply = (m // 2).bit_length() + (m // 2).bit_count() - 2
        assert window_plan(m // 2).products < 0.85 * square_and_multiply


@pytest.mark.parametrize("m", PRIMES)
class TestRationalExponent:
    def test_integers_are_themselves(self, m: int) -> None:
        assert [rational_exponent(Fraction(n), m) for n in range(20)] == list(range(20))

    def test_times_the_denominator_is_the_numerator_up_to_sign(self, m: int) -> None:
        half = (m - 1) // 2
        for r in (Fraction(1, 2), Fraction(1, 3), Fraction(7, 10), Fraction("2.718281828459045")):
            k = rational_exponent(r, m)
            assert k is not None
            assert k * r.denominator % half == r.numerator % half

    @pytest.mark.parametrize(
        ("text", "odd"),
        [("1/2", True), ("3/2", False), ("5/2", True), ("1/3", True), ("0.1", True)],
    )
    def test_whole_part_decides_the_parity(self, m: int, text: str, odd: bool) -> None:
        k = rational_exponent(Fraction(text), m)
        assert k is not None
        assert k % 2 == odd

    def test_opposite_powers_cancel(self, m: int) -> None:
        for r in (Fraction(0), Fraction(1), Fraction(1, 2), Fraction(17, 10)):
            k, opposite = rational_exponent(r, m), rational_exponent(-r, m)
            assert k is not None
            assert opposite is not None
            assert (k + opposite) % (m - 1) == 0

    def test_no_exponent_without_an_inverse(self, m: int) -> None:
        half = (m - 1) // 2
        factor = next(d for d in (*range(3, 1 << 16, 2), half) if half % d == 0)
        assert rational_exponent(Fraction(1, factor), m) is None
