from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest

from mirage_py.ugraph.field import FIELDS, DivisionByZero
from mirage_py.ugraph.field import residues as r

PRIMES = [m for field in FIELDS for m in (field.p, field.q)]
SIZES = [0, 1, 2, 3, 7, 8, 9, 17, 100, 799, 800, 1001, 8191, 8193, 20000]


def sample(m: int, size: int, *, zero: bool = True) -> np.ndarray:
    low = 0 if zero else 1
    values = np.random.default_rng(size).integers(low, m, size)
    edges = [value for value in (0, 1, m - 1, m // 2, m // 2 + 1) if value >= low]
    values[: len(edges)] = edges[:size]
    return values


@pytest.mark.parametrize("m", PRIMES)
@pytest.mark.parametrize(
    ("vectorised", "exact"),
    [(r.add, operator.add), (r.subtract, operator.sub), (r.multiply, operator.mul)],
)
def test_binary_operations(m: int, vectorised: Callable, exact: Callable) -> None:
    a, b = sample(m, 300), sample(m, 300)[::-1]
    expected = [exact(x, y) % m for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert vectorised(a, b, m).tolist() == expected
    edge = np.array([0, 1, m - 1])
    grid = vectorised(edge[:, None], edge[None], m)
    assert grid.tolist() == [[exact(x, y) % m for y in edge.tolist()] for x in edge.tolist()]


@pytest.mark.parametrize("m", PRIMES)
def test_negation(m: int) -> None:
    assert r.negate(np.array([0, 1, m - 1]), m).tolist() == [0, m - 1, 1]


@pytest.mark.parametrize("size", SIZES)
def test_inverse(size: int) -> None:
    m = PRIMES[0]
    a = sample(m, size, zero=False)
    assert r.inverse(a, m).tolist() == [pow(x, -1, m) for x in a.tolist()]


@pytest.mark.parametrize("size", [1, 2, 9, 100, 1001])
@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_inverse_of_zero(size: int, place: float) -> None:
    m = PRIMES[1]
    a = sample(m, size, zero=False)
    a[int(place * (size - 1))] = 0
    with pytest.raises(DivisionByZero, match=str(m)):
        r.inverse(a, m)


@pytest.mark.parametrize("m", PRIMES)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5, 31, 65537, 2**30 - 1, 2**30])
def test_power(m: int, exponent: int) -> None:
    for size in (5, 50, 900):
        a = sample(m, size)
        assert r.power(a, exponent, m).tolist() == [pow(x, exponent, m) for x in a.tolist()]


@pytest.mark.parametrize("size", SIZES)
def test_power_in_blocks(size: int) -> None:
    m = PRIMES[0]
    a = sample(m, size)
    exponent = (m + 1) // 4
    assert r.power(a, exponent, m).tolist() == [pow(x, exponent, m) for x in a.tolist()]


@pytest.mark.parametrize("m", PRIMES)
def test_legendre(m: int) -> None:
    a = sample(m, 500)
    squares = a * a % m
    assert (r.legendre(squares, m) == (a != 0)).all()
    # -1 is not a square, since the primes are 3 mod 4.
    assert (r.legendre(r.negate(squares, m), m) == -1 * (a != 0)).all()


def test_total() -> None:
    m = PRIMES[0]
    a = np.full((1 << 10, 3, 1 << 10), m - 1)
    assert r.total(a, (0, 2), keepdims=False, m=m).tolist() == [-(1 << 20) % m] * 3
    assert r.total(a, (0, 2), keepdims=True, m=m).shape == (1, 3, 1)
    assert r.total(a, (), keepdims=False, m=m).shape == a.shape


def test_operands_are_not_written_to() -> None:
    m = PRIMES[0]
    a = sample(m, 1000, zero=False)
    before = a.copy()
    for make in (r.add, r.subtract, r.multiply):
        make(a, a, m)
    for size in (5, 1000):
        r.power(a[:size], 1, m)[:] = 0
        r.power(a[:size], m - 2, m)[:] = 0
    r.inverse(a, m)[:] = 0
    r.inverse(a[:1], m)[:] = 0
    r.legendre(a, m)
    assert (a == before).all()


def test_strided_and_scalar_operands() -> None:
    m = PRIMES[0]
    a = sample(m, 2000, zero=False).reshape(40, 50)[::2, 1::3].T
    assert r.inverse(a, m).tolist() == [[pow(x, -1, m) for x in row] for row in a.tolist()]
    assert r.power(a, m - 2, m).tolist() == r.inverse(a, m).tolist()
    zero_d = np.array(5)
    results = [
        r.add(zero_d, zero_d, m),
        r.subtract(zero_d, zero_d, m),
        r.multiply(zero_d, zero_d, m),
        r.negate(zero_d, m),
        r.inverse(zero_d, m),
        r.power(zero_d, 3, m),
        r.power(zero_d, 0, m),
        r.legendre(zero_d, m),
        r.total(a, (0, 1), keepdims=False, m=m),
    ]
    assert all(isinstance(result, np.ndarray) and result.shape == () for result in results)
