"""Intervals hold the real value, know ties and zero divisors, and say what is undefined."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from mirage_py.ugraph.operators import ELEMENTWISE, all_operators
from mirage_py.verify.intervals.interval_functions import apply, power
from mirage_py.verify.intervals.interval_meaning import IntervalMeaning
from mirage_py.verify.intervals.intervals import Interval, exact, rounded

VALUES = [0.0, 1.0, -1.0, 0.5, -2.25, 3.0, 1 / 3, -7.1, 40.0, 1e-20, 1e9, 2.0**-30]
NUMBERS = exact(np.array(VALUES))
RATIONAL = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}
DECIMAL = {"exp": Decimal.exp, "log": Decimal.ln, "sqrt": Decimal.sqrt}


def interval(*pairs: tuple[float, float]) -> Interval:
    mid, rad = (np.array(part) for part in zip(*pairs, strict=True))
    return Interval(mid, rad)


@pytest.mark.parametrize("op", RATIONAL)
def test_arithmetic_holds_the_rational_value(op: str) -> None:
    for b in VALUES:
        found = apply(op, [NUMBERS, exact(np.array([b]))])
        for n, a in enumerate(VALUES):
            if op == "div" and b == 0:
                assert found.undefined()[n]
                continue
            value = RATIONAL[op](Fraction(a), Fraction(b))
            assert abs(value - Fraction(found.mid[n])) <= Fraction(found.rad[n])
            assert found.rad[n] <= 1e-15 * abs(found.mid[n]) + 1e-290


@pytest.mark.parametrize("op", DECIMAL)
def test_functions_hold_the_value(op: str) -> None:
    with localcontext(prec=60):
        found = apply(op, [NUMBERS])
        for n, a in enumerate(VALUES):
            if (op == "log" and a <= 0) or (op == "sqrt" and a < 0):
                assert found.undefined()[n]
            elif found.known()[n]:
                value = DECIMAL[op](Decimal(a))
                assert abs(value - Decimal(float(found.mid[n]))) <= Decimal(float(found.rad[n]))


@pytest.mark.parametrize("op", [o.name for o in all_operators() if o.kind == ELEMENTWISE])
def test_a_moved_operand_stays_within(op: str) -> None:
    """Of operands with a radius the result holds what each value within it gives."""
    if op == "shift":
        return
    arity = next(o.arity for o in all_operators() if o.name == op)
    draw = np.random.default_rng(3)
    centres = [draw.integers(-40, 41, size=400) / 16 for _ in range(arity)]
    radii = [draw.choice([0.0, 1e-12, 1e-3, 0.3], size=400) for _ in range(arity)]
    wide = apply(op, [Interval(c, r) for c, r in zip(centres, radii, strict=True)])
    for _ in range(20):
        points = [
            exact(c + r * draw.uniform(-1, 1, size=400))
            for c, r in zip(centres, radii, strict=True)
        ]
        there = apply(op, points)
        both = wide.known() & there.known()
        assert not (wide.known() & there.undefined()).any()
        assert not (wide.undefined() & there.known()).any()
        apart = np.abs(wide.mid - there.mid)
        assert (apart <= wide.rad * (1 + 1e-12) + there.rad + 1e-15)[both].all()
    assert wide.known().any()


@pytest.mark.parametrize("exponent", [2.0, 3.0, -1.0, 0.5, -1.5, 7.0])
def test_constant_powers(exponent: float) -> None:
    found = power(NUMBERS, exponent)
    for n, a in enumerate(VALUES):
        if (a == 0 and exponent < 0) or (a < 0 and exponent % 1):
            assert found.undefined()[n]
        else:
            assert found.mid[n] == pytest.approx(a**exponent, rel=1e-13)


def test_small_numbers_are_exact() -> None:
    meaning = IntervalMeaning()
    x = exact(np.arange(-8, 8).reshape(1, 4, 4) / 4)
    y = exact(np.arange(16.0).reshape(4, 4, 1).transpose(2, 0, 1))
    for found in (
        meaning.sum(x, (1,)),
        meaning.contract(x, y, (1,)),
        apply("div", [exact(np.array([3.0])), exact(np.array([4.0]))]),
        apply("exp", [exact(np.zeros(1))]),
        apply("sqrt", [exact(np.array([9.0]))]),
        apply("log", [exact(np.ones(1))]),
    ):
        assert not found.rad.any()


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        ("log", [1.0], 0.0), ("log1p", [0.0], 0.0), ("exp", [0.0], 1.0), ("expm1", [0.0], 0.0),
        ("sqrt", [0.25], 0.5), ("sqrt", [2.25], 1.5), ("rsqrt", [1.0], 1.0), ("rsqrt", [0.25], 2.0),
        ("tanh", [0.0], 0.0), ("erf", [0.0], 0.0), ("sigmoid", [0.0], 0.5), ("silu", [0.0], 0.0),
        ("gelu", [0.0], 0.0), ("gelu_tanh", [0.0], 0.0), ("div", [0.1, 0.1], 1.0),
        ("pow", [2.0, 3.0], 8.0), ("pow", [-2.0, 3.0], -8.0), ("pow", [0.5, 2.0], 0.25),
        ("pow", [1.0, 0.5], 1.0), ("pow", [0.0, 2.0], 0.0),
    ],
)  # fmt: skip
def test_functions_of_exact_numbers_are_exact(
    op: str, operands: list[float], expected: float
) -> None:
    found = apply(op, [exact(np.array([x])) for x in operands])
    assert (found.mid.tolist(), found.rad.tolist()) == ([expected], [0.0])


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [(0.25, 0.5, 0.5), (4.0, -0.5, 0.5), (0.5, 2.0, 0.25), (1.5, 3.0, 3.375), (2.0, -1.0, 0.5)],
)
def test_constant_powers_of_few_bits_are_exact(
    base: float, exponent: float, expected: float
) -> None:
    found = power(exact(np.array([base])), exponent)
    assert (found.mid.tolist(), found.rad.tolist()) == ([expected], [0.0])


def test_powers_of_many_bits_are_not_exact() -> None:
    for found in (
        power(exact(np.array([1.1, 77.0, 3.0])), 13.0),
        apply("pow", [exact(np.array([1.1, 77.0])), exact(np.array([13.0, 13.0]))]),
    ):
        assert (found.rad[:2] > 0).all()
        for value, base in zip(found.mid[:2], (1.1, 77.0), strict=True):
            assert 0 < abs(Fraction(base) ** 13 - Fraction(value))
    assert power(exact(np.array([3.0])), 13.0).rad.tolist() == [0.0]
    # 0 in float64, and not in real numbers.
    assert power(exact(np.array([2.0**-8])), 200.0).rad.tolist() != [0.0]


def test_a_value_and_itself() -> None:
    meaning = IntervalMeaning()
    roots = apply("sqrt", [exact(np.array([[2.0, 3.0, 5.0]]))])
    again = meaning.stretch(roots, (1,))
    assert roots.rad.all()
    expected = {
        "sub": 0, "div": 1, "eq": 1, "ne": 0, "gt": 0, "ge": 1, "lt": 0, "le": 1,
    }  # fmt: skip
    for op, value in expected.items():
        found = apply(op, [roots, again])
        assert (found.mid == value).all()
        assert not found.rad.any()
    # Equal numbers are not one value, and nothing is known of what may be 0 or have no value.
    other = Interval(roots.mid.copy(), roots.rad.copy())
    assert apply("sub", [roots, other]).rad.all()
    small = interval((1e-9, 1e-8))
    assert not apply("div", [small, small]).known().any()
    unknown = interval((1.0, np.inf))
    for op in expected:
        assert not apply(op, [unknown, unknown]).known().any()
    undefined = exact(np.array([np.nan]))
    for op in expected:
        assert apply(op, [undefined, undefined]).undefined().all()


def test_ties() -> None:
    third = apply("div", [exact(np.ones(1)), exact(np.array([3.0]))])
    same = apply("div", [exact(np.array([2.0])), exact(np.array([6.0]))])
    for op, expected in {"gt": 0, "ge": 1, "lt": 0, "le": 1, "eq": 1, "ne": 0}.items():
        for a, b in ((third, same), (rounded(np.array([0.1])), IntervalMeaning().const(0.1))):
            found = apply(op, [a, b])
            assert found.known().all()
            assert found.mid.tolist() == [expected]
        # Too close to be told apart.
        assert not apply(op, [interval((1.0, 1e-9)), interval((1.0, 0.0))]).known().any()


def test_a_selection_takes_one_branch() -> None:
    undefined = exact(np.array([np.nan]))
    unknown = interval((0.0, np.inf))
    one, zero = exact(np.ones(1)), exact(np.zeros(1))
    assert apply("where", [one, one, undefined]).mid.tolist() == [1]
    assert apply("where", [zero, undefined, one]).mid.tolist() == [1]
    assert apply("where", [zero, one, undefined]).undefined().all()
    assert not apply("where", [unknown, one, zero]).known().any()
    # A factor is no selection.
    assert apply("mul", [zero, undefined]).undefined().all()
    assert not apply("mul", [zero, unknown]).known().any()


def test_nothing_is_known_of_what_may_divide_by_zero() -> None:
    found = apply("div", [exact(np.ones(1)), interval((1e-9, 1e-8))])
    assert not found.known().any()
    assert not found.undefined().any()


def test_overflow_is_not_undefined() -> None:
    found = apply("sub", [apply("exp", [exact(np.array([800.0]))])] * 2)
    assert not found.known().any()
    assert not found.undefined().any()


def test_infinities_that_a_program_writes_down() -> None:
    meaning = IntervalMeaning()
    low = meaning.const(-np.inf)
    assert apply("exp", [low]).mid.tolist() == [0]
    assert apply("add", [low, exact(np.ones(1))]).mid.tolist() == [-np.inf]
    assert apply("sub", [low, low]).undefined().all()
    assert meaning.max(exact(np.array([[-np.inf], [2.0]])), (0,)).mid.tolist() == [[2]]
