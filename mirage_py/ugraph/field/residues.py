"""Arithmetic on arrays of residues modulo one prime below 2^31.

Elements lie in [0, m), so a sum has 32 bits and a product 62: both fit int64, and one remainder
brings them back. Every function returns a new array (also for 0-d operands, where NumPy alone would
return a scalar).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.field.powers import window_plan
from mirage_py.ugraph.field.values import Residues

Words: TypeAlias = NDArray[np.uint64]

_BLOCK = 8192
"""Elements ``power`` works on at a time: they, their powers and the scratch stay in the cache."""

_LONG = 800
"""Elements from which on a remainder by way of the quotient is faster (measured)."""

_FEW = 8
"""Up to so many elements Python's own ``pow`` is faster: 4 us for a power, 1 us for an inverse."""


class DivisionByZero(Exception):  # noqa: N818 - a request to the caller, never seen by a user
    """A divisor is zero in the field: the caller draws other random inputs and evaluates again."""


def add(a: Residues, b: Residues, m: int) -> Residues:
    """``a + b``, broadcast."""
    total = np.add(a, b)
    total %= m
    return np.asarray(total)


def subtract(a: Residues, b: Residues, m: int) -> Residues:
    """``a - b``, broadcast."""
    difference = np.subtract(a, b)
    difference %= m  # NumPy's remainder takes the sign of the modulus
    return np.asarray(difference)


def negate(a: Residues, m: int) -> Residues:
    """``-a``."""
    opposite = np.negative(a)
    opposite %= m
    return np.asarray(opposite)


def multiply(a: Residues, b: Residues, m: int) -> Residues:
    """``a * b``, broadcast."""
    product = np.multiply(a, b)
    product %= m
    return np.asarray(product)


def total(a: Residues, axes: tuple[int, ...], keepdims: bool, m: int) -> Residues:
    """Sum over ``axes``; exact for up to 2^32 terms."""
    whole = a.sum(axis=axes, keepdims=keepdims)
    whole %= m
    return np.asarray(whole)


def power(base: Residues, exponent: int, m: int) -> Residues:
    """``base ** exponent`` for one exponent of at least 0, by sliding windows; 0 ** 0 is 1."""
    if exponent == 0:
        return np.ones(base.shape, dtype=np.int64)
    if base.size <= _FEW:
        few = [pow(element, exponent, m) for element in base.reshape(-1).tolist()]
        return np.array(few, dtype=np.int64).reshape(base.shape)
    flat = np.ascontiguousarray(base).reshape(-1).view(np.uint64)
    raised = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        _power_of_block(flat[start : start + _BLOCK], exponent, m, raised[start : start + _BLOCK])
    return raised.view(np.int64).reshape(base.shape)


def _power_of_block(base: Words, exponent: int, m: int, raised: Words) -> None:
    plan = window_plan(exponent)
    multiply_into = _multiplier(base.size, m)
    odd_powers = [base]
    if plan.largest_digit > 1:
        square = np.empty_like(base)
        multiply_into(base, base, square)
        for _ in range(plan.largest_digit // 2):
            odd_powers.append(np.empty_like(base))
            multiply_into(odd_powers[-2], square, odd_powers[-1])
    raised[...] = odd_powers[plan.first_digit // 2]
    for squarings, digit in plan.steps:
        for _ in range(squarings):
            multiply_into(raised, raised, raised)
        if digit:
            multiply_into(raised, odd_powers[digit // 2], raised)


def _multiplier(size: int, m: int) -> Callable[[Words, Words, Words], None]:
    """The faster way to put the product of the first two arrays into the third, for their size."""
    modulus = np.uint64(m)
    quotient = np.empty(size, dtype=np.uint64)

    def multiply_short(a: Words, b: Words, product: Words) -> None:
        np.multiply(a, b, out=product)
        np.remainder(product, modulus, out=product)

    def multiply_long(a: Words, b: Words, product: Words) -> None:
        np.multiply(a, b, out=product)
        # Division by one number is vectorised and remainder is not: for long arrays three passes
        # beat one.
        np.floor_divide(product, modulus, out=quotient)
        np.multiply(quotient, modulus, out=quotient)
        np.subtract(product, quotient, out=product)

    return multiply_short if size < _LONG else multiply_long


def legendre(a: Residues, m: int) -> Residues:
    """The Legendre symbol: 1 for a square, -1 for a non-square, 0 for 0."""
    symbol = power(a, (m - 1) // 2, m)
    symbol -= m * (symbol > 1)
    return symbol


def inverse(a: Residues, m: int) -> Residues:
    """``1 / a`` for every element: a tree of products, the inverse of its root, and back down.

    1.5 products per element, where a Fermat power takes about 40. Raises ``DivisionByZero``.
    """
    level = a.reshape(-1)
    pairs: list[tuple[Residues, Residues, int]] = []
    while level.size > _FEW:
        half, spare = divmod(level.size, 2)
        left, right = level[: half + spare], level[half:]
        # With an odd count the middle element is on both sides, which costs nothing and needs no
        # padding.
        pairs.append((left, right, half))
        level = multiply(left, right, m)
    try:
        inverted = np.array([pow(element, -1, m) for element in level.tolist()], dtype=np.int64)
    except ValueError:
        raise DivisionByZero(f"a divisor is zero modulo {m}") from None
    for left, right, half in reversed(pairs):
        both = np.empty(half + left.size, dtype=np.int64)
        np.multiply(inverted, left, out=both[half:])
        np.multiply(inverted[:half], right[:half], out=both[:half])
        both %= m
        inverted = both
    return inverted.reshape(a.shape)
