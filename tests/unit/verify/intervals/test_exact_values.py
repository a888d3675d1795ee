"""Residues beside intervals: against rational numbers of Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mirage_py.verify.intervals.exact_meaning import ExactMeaning, algebraic_root
from mirage_py.verify.intervals.exact_values import PRIME, Exact, of_decimals, of_floats

MEANING = ExactMeaning()


def _residue(number: Fraction) -> int:
    return number.numerator * pow(number.denominator, -1, PRIME) % PRIME


def _decimals(*texts: str) -> Exact:
    return of_decimals(np.array([[float(t)] for t in texts]))


def _truth(op: str, a: Exact, b: Exact) -> list[float | None]:
    found = MEANING.apply(op, None, [a, b]).interval
    known = found.known()[..., 0]
    return [float(x) if k else None for x, k in zip(found.mid[..., 0], known, strict=True)]


def test_floats_have_the_residue_of_their_number() -> None:
    values = [0.0, 1.0, -1.5, 0.1, 2.0**-1074, 1e308, -3e-200]
    expected = [_residue(Fraction(v)) for v in values]
    assert of_floats(np.array(values)).tolist() == expected


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_arithmetic_of_decimals(op: str) -> None:
    texts = ["0.1", "-0.7", "3", "1e-4", "12.34"]
    others = ["0.3", "0.2", "-7", "1e-6", "0.05"]
    found = MEANING.apply(op, None, [_decimals(*texts), _decimals(*others)])
    pairs = [(Fraction(a), Fraction(b)) for a, b in zip(texts, others, strict=True)]
    of = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
          "div": lambda a, b: a / b}  # fmt: skip
    exact = [of[op](a, b) for a, b in pairs]
    assert found.residue[..., 0].tolist() == [_residue(x) for x in exact]
    for x, mid, rad in zip(exact, found.interval.mid[..., 0], found.interval.rad[..., 0],
                           strict=True):  # fmt: skip
        assert abs(x - Fraction(float(mid))) <= Fraction(float(rad))


def test_a_tie_that_no_float_is() -> None:
    total = MEANING.sum(_decimals("0.1", "0.2", "0.7"), (0,))
    beside = MEANING.sum(_decimals("0.1", "0.2", "0.70000001"), (0,))
    one = MEANING.const(1.0)
    assert _truth("gt", total, one) == [0.0]
    assert _truth("ge", total, one) == [1.0]
    assert _truth("eq", total, one) == [1.0]
    assert _truth("gt", beside, one) == [1.0]


def test_a_difference_of_one_number_is_zero() -> None:
    total = MEANING.sum(_decimals("0.1", "0.2"), (0,))
    zero = MEANING.apply("sub", None, [total, _decimals("0.3")])
    assert zero.interval.mid.item() == 0
    assert zero.interval.rad.item() == 0
    assert MEANING.apply("div", None, [MEANING.const(1.0), zero]).interval.undefined().all()


def test_numbers_within_rounding_that_are_not_the_same_stay_open() -> None:
    """1e-17 apart: no interval tells them apart, and their residues differ."""
    sums = (
        MEANING.sum(_decimals("0.1", "0.2"), (0,)),
        MEANING.sum(_decimals("0.1", "0.20000000000000001"), (0,)),
    )
    assert _truth("eq", *sums) == [1.0]  # the same decimal as a float
    other = MEANING.apply("add", None, [sums[0], _decimals("1e-17")])
    assert _truth("eq", sums[0], other) == [None]


def test_equal_arguments_of_a_function_give_equal_values() -> None:
    a = MEANING.apply("exp", None, [MEANING.sum(_decimals("0.1", "0.2"), (0,))])
    b = MEANING.apply("exp", None, [_decimals("0.3")])
    assert _truth("eq", a, b) == [1.0]


def test_roots() -> None:
    found = MEANING.apply("sqrt", None, [_decimals("1e-12", "0.49", "2")])
    assert found.residue[:2, 0].tolist() == [_residue(Fraction("1e-6")), _residue(Fraction("0.7"))]
    numbers = np.array([[float(x)] for x in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43)])
    root = algebraic_root(of_decimals(numbers))
    squared = MEANING.apply("square", None, [root]).residue[:, 0]
    is_square = [pow(int(x), (PRIME - 1) // 2, PRIME) == 1 for x in numbers[:, 0]]
    assert (squared == numbers[:, 0]).tolist() == is_square
    assert 0 < sum(is_square) < len(is_square)


def test_the_largest_has_the_residue_of_all_that_may_be() -> None:
    products = [_decimals("0.1", "0.2", "0.01"), _decimals("0.2", "0.1", "0.3")]
    tie = MEANING.max(MEANING.apply("mul", None, products), (0,))
    assert tie.residue.item() == _residue(Fraction("0.02"))
