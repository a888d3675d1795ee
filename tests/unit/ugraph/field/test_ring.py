from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.field import FIELDS, DivisionByZero, Field, FieldArray, FieldOps, residues
from mirage_py.ugraph.field.reading import Reading
from mirage_py.ugraph.field.ring import exact_rational


@pytest.fixture(params=FIELDS, ids=["first", "second"])
def ops(request: pytest.FixtureRequest) -> FieldOps:
    return FieldOps(request.param, 7)


def test_both_parts_follow_python_integers(ops: FieldOps) -> None:
    x, y = ops.random((200,), "x"), ops.random((200,), "y")
    for m, name in ((ops.field.p, "p"), (ops.field.q, "q")):
        a, b = getattr(x, name).tolist(), getattr(y, name).tolist()
        pairs = list(zip(a, b, strict=True))
        for result, expected in [
            (ops.add(x, y), [(u + v) % m for u, v in pairs]),
            (ops.sub(x, y), [(u - v) % m for u, v in pairs]),
            (ops.mul(x, y), [u * v % m for u, v in pairs]),
            (ops.div(x, y), [u * pow(v, -1, m) % m for u, v in pairs]),
            (ops.reciprocal(x), [pow(u, -1, m) for u in a]),
            (ops.neg(x), [-u % m for u in a]),
            (ops.square(x), [u * u % m for u in a]),
            (ops.sum(x, 0), sum(a) % m),
            (ops.contract(x, y, -1), sum(u * v for u, v in pairs) % m),
        ]:
            assert getattr(result, name).tolist() == expected


def test_a_missing_q_part_is_missing_in_every_result(ops: FieldOps) -> None:
    x = ops.random((4,), "x")
    bare = FieldArray(x.p, None)
    for result in (
        ops.add(x, bare),
        ops.sub(bare, x),
        ops.mul(bare, bare),
        ops.div(x, bare),
        ops.neg(bare),
        ops.sum(bare, 0),
        ops.contract(x, bare, 0),
        ops.where(ops.random_bits((4,), "c"), x, bare),
    ):
        assert result.q is None


def test_division_by_zero_in_either_part(ops: FieldOps) -> None:
    one = ops.constant(1)
    for divisor in (
        FieldArray(np.array([1, 0]), np.array([1, 1])),
        FieldArray(np.array([1, 1]), np.array([0, 1])),
    ):
        with pytest.raises(DivisionByZero):
            ops.div(one, divisor)
        with pytest.raises(DivisionByZero):
            ops.reciprocal(divisor)


def test_where_selects(ops: FieldOps) -> None:
    bits, a, b = ops.random_bits((50,), "c"), ops.random((50,), "a"), ops.random((50,), "b")
    assert ops.where(bits, a, b).p.tolist() == np.where(bits.p == 1, a.p, b.p).tolist()


class TestConstant:
    @pytest.mark.parametrize(
        ("value", "rational"),
        [
            (0, Fraction(0)),
            (-3, Fraction(-3)),
            (True, Fraction(1)),
            (1e-6, Fraction(1, 10**6)),
            (0.1, Fraction(1, 10)),
            (-2.5e20, Fraction(-25 * 10**19)),
            (np.float64(0.1), Fraction(1, 10)),
            (np.int32(12), Fraction(12)),
            (Fraction(2, 3), Fraction(2, 3)),
        ],
    )
    def test_is_the_rational_of_the_decimal_text(
        self, ops: FieldOps, value: float, rational: Fraction
    ) -> None:
        constant = ops.constant(value)
        assert constant.shape == ()
        assert constant.q is not None
        for part, m in ((constant.p, ops.field.p), (constant.q, ops.field.q)):
            assert part.dtype == np.int64
            assert int(part) * rational.denominator % m == rational.numerator % m

    @pytest.mark.parametrize("value", [float("inf"), float("nan")])
    def test_without_a_field_value(self, ops: FieldOps, value: float) -> None:
        with pytest.raises(UnsupportedError, match="finite field"):
            ops.constant(value)

    def test_with_a_prime_for_a_denominator(self, ops: FieldOps) -> None:
        with pytest.raises(DivisionByZero):
            ops.constant(Fraction(1, ops.field.q))


class TestRandom:
    def test_is_a_function_of_seed_field_and_key(self) -> None:
        first, second = FIELDS
        draws = [
            FieldOps(first, 1).random((100,), "x"),
            FieldOps(first, 1).random((100,), "y"),
            FieldOps(first, 2).random((100,), "x"),
            FieldOps(second, 1).random((100,), "x"),
        ]
        assert len({draw.fingerprint() for draw in draws}) == 4
        assert FieldOps(first, 1).random((100,), "x").fingerprint() == draws[0].fingerprint()

    @pytest.mark.parametrize("field", FIELDS)
    def test_is_uniform_and_the_parts_are_independent(self, field: Field) -> None:
        x = FieldOps(field, 3).random((100, 200), "x")
        assert x.q is not None
        assert x.p.min() > 0
        assert x.q.min() > 0
        assert x.p.max() < field.p
        assert x.q.max() < field.q
        assert abs(np.corrcoef(x.p.ravel(), x.q.ravel())[0, 1]) < 0.03
        counts = np.histogram(x.p, bins=16, range=(0, field.p))[0]
        assert abs(counts / x.size * 16 - 1).max() < 0.15

    def test_bits_are_fair_and_the_same_in_both_parts(self, ops: FieldOps) -> None:
        bits = ops.random_bits((5000,), "b")
        assert bits.q is not None
        assert (bits.p == bits.q).all()
        assert np.unique(bits.p).tolist() == [0, 1]
        assert abs(bits.p.mean() - 0.5) < 0.04

    def test_shapes(self, ops: FieldOps) -> None:
        for shape in ((), (0,), (2, 3)):
            assert ops.random(shape, "x").shape == shape
            assert ops.random_bits(shape, "x").shape == shape
            assert isinstance(ops.random(shape, "x").p, np.ndarray)


def test_equal(ops: FieldOps) -> None:
    x, y = ops.random((3, 4), "x"), ops.random((3, 4), "y")
    assert ops.equal(x, x.reshape((12,)).reshape((3, 4)))
    assert not ops.equal(x, y)
    assert not ops.equal(x, x.reshape((4, 3)))
    assert not ops.equal(x, x.reshape((1, 3, 4)))
    assert not ops.equal(x, FieldArray(x.p, y.q))
    assert not ops.equal(x, FieldArray(y.p, x.q))
    assert ops.equal(x, FieldArray(x.p, None))
    assert not ops.equal(x[:1], x[:1].broadcast((3, 4)))


def test_axes(ops: FieldOps) -> None:
    x = ops.random((2, 3, 4), "x")
    assert ops.sum(x, (0, -1)).shape == (3,)
    assert ops.sum(x, (0, -1), keepdims=True).shape == (1, 3, 1)
    assert ops.sum(x, (-1, 2)).shape == (2, 3)
    assert ops.sum(x, ()).fingerprint() == x.fingerprint()
    assert ops.contract(x, x[0], -1).shape == (2, 3)
    for wrong in (3, -4, (0, 5)):
        with pytest.raises(ValueError, match="3 axes"):
            ops.sum(x, wrong)


def test_scalars_stay_arrays(ops: FieldOps) -> None:
    x = ops.constant(3)
    for result in (
        ops.add(x, x),
        ops.mul(x, x),
        ops.neg(x),
        ops.div(x, x),
        ops.where(x, x, x),
        ops.sum(ops.random((3,), "x"), 0),
        ops.sum(x, ()),
        ops.contract(x, x, ()),
    ):
        assert isinstance(result.p, np.ndarray)
        assert isinstance(result.q, np.ndarray)
        assert result.shape == ()


class TestReading:
    """What stands for constants where their sign matters, or where they are variables."""

    VALUES = (31, 43, 61, 113, 131, 0.37, 1e-6, 7.5, Fraction(113, 217))

    @pytest.mark.parametrize("value", VALUES)
    def test_positive_constants_are_squares(self, ops: FieldOps, value: float) -> None:
        signed = FieldOps(ops.field, 7, Reading(positive=True))
        for sign in (1, -1):
            constant = signed.constant(sign * exact_rational(value))
            assert constant.q is not None
            for part, m in ((constant.p, ops.field.p), (constant.q, ops.field.q)):
                assert int(residues.legendre(part.reshape(1), m)[0]) == sign

    @pytest.mark.parametrize("generic", [False, True])
    def test_products_stay_what_they_are(self, ops: FieldOps, generic: bool) -> None:
        signed = FieldOps(ops.field, 7, Reading(positive=True, generic=generic, kept=(5,)))
        for a in self.VALUES:
            for b in self.VALUES:
                product = exact_rational(a) * exact_rational(b)
                found = signed.mul(signed.constant(a), signed.constant(b))
                assert signed.equal(found, signed.constant(product))
        assert int(signed.constant(5).p) == 5
        assert int(signed.constant(0).p) == 0
        assert int(signed.constant(-1).p) == ops.field.p - 1

    def test_squares_and_kept_factors_are_themselves(self, ops: FieldOps) -> None:
        kept = FieldOps(ops.field, 7, Reading(positive=True, kept=(31,)))
        for value in (12, 0.5, 1e-6, 31, 62):
            assert kept.equal(kept.constant(value), ops.constant(value))

    def test_multiples_of_the_prime_are_not_zero(self, ops: FieldOps) -> None:
        signed = FieldOps(ops.field, 7, Reading(positive=True))
        assert int(ops.constant(ops.field.p).p) == 0
        assert int(signed.constant(ops.field.p).p) != 0
