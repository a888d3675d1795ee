from __future__ import annotations

import math

import numpy as np
import pytest

from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.field.contraction import EXACT_TERMS, contract, matmul

PRIMES = [m for field in FIELDS for m in (field.p, field.q)]

SHAPES = [
    # a, b, axes: small ones take the direct way, large ones the matrix way
    ((), (), ()),
    ((5,), (5,), (0,)),
    ((1,), (5,), (0,)),
    ((1,), (1,), (0,)),
    ((0,), (1,), (0,)),
    ((3, 0), (1, 1), (1,)),
    ((4, 6, 1), (1, 6, 5), (1,)),
    ((20, 30, 1), (1, 30, 25), (1,)),
    ((20, 30, 1), (30, 25), (1,)),
    ((20, 1, 30), (1, 25, 30), (2,)),
    ((30, 20, 1), (30, 1, 25), (0,)),
    ((3, 20, 30, 1), (3, 1, 30, 25), (2,)),
    ((3, 20, 30, 1), (1, 1, 30, 25), (2,)),
    ((1, 20, 30, 1), (3, 1, 30, 25), (2,)),
    ((3, 20, 30, 1), (3, 1, 30, 25), (0, 2)),
    ((3, 20, 30, 1), (3, 1, 30, 25), (2, 3)),
    ((3, 20, 30, 1), (3, 1, 30, 25), (1, 2, 3)),
    ((3, 20, 30, 1), (3, 1, 30, 25), (0, 1, 2, 3)),
    ((3, 20, 30, 1), (3, 1, 30, 25), ()),
    ((3, 20, 30, 1), (3, 1, 30, 25), (1,)),
    ((2, 1, 15, 7, 1, 6), (2, 11, 1, 7, 5, 6), (3, 5)),
    ((100, 100), (100, 100), (0, 1)),
    ((100, 100), (100, 100), (1,)),
    ((100, 100), (1, 1), (1,)),
    ((100, 100), (100, 1), (0, 1)),
    ((7000,), (7000,), (0,)),
]


def random(m: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, m, shape)


@pytest.mark.parametrize(("a_shape", "b_shape", "axes"), SHAPES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_is_the_sum_of_products(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool
) -> None:
    for m in PRIMES[:2]:
        a, b = random(m, a_shape, 1), random(m, b_shape, 2)
        result = contract(a, b, axes, keepdims, m)
        exact = (a.astype(object) * b.astype(object)) % m
        expected = np.asarray(np.sum(np.asarray(exact), axis=axes, keepdims=keepdims) % m)
        assert result.dtype == np.int64
        assert result.shape == expected.shape
        assert result.tolist() == expected.tolist()


def worst_limbs(m: int) -> int:
    """The residue with the largest sum of limbs."""
    return ((m - 1) >> 16) * (1 << 16) - 1


@pytest.mark.parametrize("m", PRIMES)
@pytest.mark.parametrize("terms", [EXACT_TERMS - 1, EXACT_TERMS, EXACT_TERMS + 1, 1 << 20])
def test_no_overflow_in_long_contractions(m: int, terms: int) -> None:
    for value in (m - 1, worst_limbs(m)):
        a = np.broadcast_to(np.array(value), (terms, 1))
        b = np.broadcast_to(np.array(value), (terms, 2))
        expected = value * value * terms % m
        assert contract(a, b, (0,), False, m).tolist() == [expected] * 2
        assert matmul(a.T[None], b[None], m).tolist() == [[[expected] * 2]]


def test_long_random_contraction() -> None:
    m, terms = PRIMES[0], 1 << 20
    a, b = random(m, (terms,), 1), random(m, (terms,), 2)
    expected = int((a * b % m).sum()) % m
    assert contract(a, b, (0,), False, m).tolist() == expected


def test_the_bound_of_the_limbs() -> None:
    largest = (2**15 - 1 + 2**16 - 1) ** 2
    assert max(PRIMES) < 2**31
    assert EXACT_TERMS * largest <= 2**53
    assert math.log2(largest) < 33.2


def test_operands_are_not_written_to() -> None:
    m = PRIMES[0]
    a, b = random(m, (40, 30, 1), 1), random(m, (1, 30, 40), 2)
    copies = a.copy(), b.copy()
    contract(a, b, (1,), False, m)
    assert (a == copies[0]).all()
    assert (b == copies[1]).all()
