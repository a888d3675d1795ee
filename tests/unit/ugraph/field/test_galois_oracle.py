"""The arithmetic of both moduli against `galois`, a package that shares no code with ours.

Its fields hold Python integers here, so nothing of it overflows and nothing waits for a compiler.
It is imported inside a fixture: collecting the tests does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mirage_py.ugraph.field import FIELDS, DivisionByZero, Field, FieldArray, FieldOps, residues
from mirage_py.ugraph.field.contraction import EXACT_TERMS, contract, matmul
from mirage_py.ugraph.field.powers import rational_exponent

Residues = NDArray[np.int64]
Oracle = Callable[[int], Any]

# 47 = 2 * 23 + 1 is the least pair of our form above 7 and 3: q = 7 mod 8.
SMALL = Field(47, 23, 4)
PAIRS = (SMALL, *FIELDS)
MODULI = tuple(m for field in PAIRS for m in (field.p, field.q))


@pytest.fixture(scope="module")
def gf() -> Oracle:
    import galois

    made: dict[int, Any] = {}

    def field(m: int) -> Any:
        if m not in made:
            made[m] = galois.GF(m, compile="python-calculate", verify=False)
        return made[m]

    return field


def values(m: int, count: int, seed: int) -> Residues:
    """The ends of the range, where limbs of 15 and 16 bits turn over, and uniform residues."""
    edges = [0, 1, m - 1, 2, m - 2, m // 2, m // 2 + 1]
    edges += [n % m for n in (0x7FFF, 0x8000, 0xFFFF, 0x10000, (1 << 30) - 1, (1 << 31) - 1)]
    drawn = np.random.default_rng(seed).integers(0, m, size=count)
    return np.concatenate([np.array(edges, dtype=np.int64), drawn])


def ints(elements: Any) -> Residues:
    array = np.asarray(elements)
    return np.array([int(v) for v in array.reshape(-1)], dtype=np.int64).reshape(array.shape)


@pytest.mark.parametrize("m", MODULI)
def test_sums_differences_products(m: int, gf: Oracle) -> None:
    a, b = values(m, 12, 1), values(m, 12, 2)
    theirs_a, theirs_b = gf(m)(a)[:, None], gf(m)(b)[None, :]
    for ours, theirs in (
        (residues.add, theirs_a + theirs_b),
        (residues.subtract, theirs_a - theirs_b),
        (residues.multiply, theirs_a * theirs_b),
    ):
        found = ours(a[:, None], b[None, :], m)
        assert found.dtype == np.int64
        assert (found == ints(theirs)).all(), ours.__name__
    assert (residues.negate(a, m) == ints(-gf(m)(a))).all()


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize("count", [1, 8, 9, 60])
def test_inverses_and_quotients(m: int, count: int, gf: Oracle) -> None:
    some = values(m, 60, 3)
    divisors = some[some != 0][:count]
    assert (residues.inverse(divisors, m) == ints(gf(m)(divisors) ** -1)).all()
    with pytest.raises(DivisionByZero):
        residues.inverse(np.append(divisors, 0), m)


@pytest.mark.parametrize("field", PAIRS, ids=lambda f: str(f.p))
def test_division_of_pairs(field: Field, gf: Oracle) -> None:
    ops = FieldOps(field, 5)
    x, y = (FieldArray(values(field.p, 20, s), values(field.q, 20, s + 1)) for s in (4, 6))
    y = FieldArray(np.maximum(y.p, 1), np.maximum(y.q, 1))
    found = ops.div(x, y)
    assert (found.p == ints(gf(field.p)(x.p) / gf(field.p)(y.p))).all()
    assert (found.q == ints(gf(field.q)(x.q) / gf(field.q)(y.q))).all()


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize("count", [3, 60], ids=["pow", "windows"])
def test_powers(m: int, count: int, gf: Oracle) -> None:
    base = values(m, 60, 7)[:count]
    for exponent in (0, 1, 2, 3, 31, 12345, (m - 1) // 2, m - 2, m - 1):
        found = residues.power(base, exponent, m)
        # galois has no 0 ** 0; ours is 1.
        theirs = ints(gf(m)(base) ** exponent) if exponent else np.ones_like(base)
        assert (found == theirs).all(), exponent


@pytest.mark.parametrize("m", MODULI)
def test_squares_and_their_roots(m: int, gf: Oracle) -> None:
    some = values(m, 40, 8)
    square = gf(m)(some).is_square()
    assert ((residues.legendre(some, m) >= 0) == square).all()
    half = rational_exponent(Fraction(1, 2), m)
    assert half is not None
    roots = residues.power(some[square], half, m)
    theirs = ints(np.sqrt(gf(m)(some[square])))
    # Of the two roots ours is the one that is a square itself.
    assert ((roots == theirs) | (roots == (m - theirs) % m)).all()
    assert gf(m)(roots).is_square().all()


@pytest.mark.parametrize("field", PAIRS, ids=lambda f: str(f.p))
def test_exponentials(field: Field, gf: Oracle) -> None:
    ops, over_p, over_q = FieldOps(field, 9), gf(field.p), gf(field.q)
    x, y = values(field.q, 40, 10), values(field.q, 40, 11)

    def exp(exponents: Residues) -> Any:
        # The p part has no say in an exponential that has a q part.
        return over_p(ops.exp(FieldArray(np.zeros_like(exponents), exponents)).p)

    base = exp(np.array([1]))
    assert (base**field.q == 1).all()
    assert (base != 1).all()
    assert (ints(exp(x)) == ints(over_p(np.full(x.size, int(base[0]))) ** x)).all()
    assert (exp(ints(over_q(x) + over_q(y))) == exp(x) * exp(y)).all()


@pytest.mark.parametrize("m", MODULI)
def test_sums_along_axes(m: int, gf: Oracle) -> None:
    x = values(m, 47, 12).reshape(3, 4, 5)
    theirs = gf(m)(x)
    for axes, flat, axis in (
        ((0,), theirs, 0),
        ((1, 2), theirs.reshape(3, 20), 1),
        ((0, 1, 2), theirs.reshape(60), 0),
    ):
        assert (residues.total(x, axes, False, m) == ints(np.add.reduce(flat, axis))).all()
    # As a product, because a million additions of Python integers take a second.
    many = np.full(1 << 20, m - 1, dtype=np.int64)
    expected = gf(m)(m - 1) * gf(m)((1 << 20) % m)
    assert int(residues.total(many, (0,), False, m)) == int(expected)


@pytest.mark.parametrize("m", MODULI)
def test_matrix_products(m: int, gf: Oracle) -> None:
    a, b = values(m, 23, 13).reshape(1, 4, 9), values(m, 32, 14).reshape(1, 9, 5)
    expected = ints(gf(m)(a[0]) @ gf(m)(b[0]))
    assert (matmul(a, b, m)[0] == expected).all()
    # Below and above the size from which on it is done by matrix products in floats.
    for rows in (1, 40):
        tall = np.tile(a[0], (rows, 1))
        found = contract(tall[:, :, None], b, (1,), False, m)
        assert (found == np.tile(expected, (rows, 1))).all()


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize("terms", [1 << 14, EXACT_TERMS, EXACT_TERMS + 3])
def test_long_contractions_of_the_greatest_residues(m: int, terms: int, gf: Oracle) -> None:
    """int64 holds two products of 31 bits each, float64 not one: this is where sums overflow."""
    greatest = np.full((1, 1, terms), m - 1, dtype=np.int64)
    period = values(m, 0, 15)
    cycled = np.resize(period, terms).reshape(1, terms, 1)
    field = gf(m)
    # The sum of the cycle, as often as it is whole, and its last part.
    whole, rest = divmod(terms, period.size)
    once, last = np.add.reduce(field(period)), np.add.reduce(field(np.append(0, period[:rest])))
    summed = once * field(whole % m) + last
    expected = int(summed * field(m - 1))
    assert int(matmul(greatest, cycled, m).item()) == expected
    assert int(contract(greatest[0], cycled[:, :, 0], (1,), False, m).item()) == expected
