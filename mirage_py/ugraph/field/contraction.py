"""Sums of products modulo a prime, exactly and at the speed of floating-point matrix
multiplication.

A residue below 2^31 is cut into ``high * 2^16 + low`` with high < 2^15 and low < 2^16. Three
float64 products (Karatsuba) give the product of two such matrices:

    high high,  low low,  (high + low) (high + low)

The terms of the last are the largest, below (2^15 + 2^16)^2 < 2^33.2, so every partial sum of up to
2^19 of them is an integer below 2^53 and exact, whatever the order of summation. Longer
contractions are summed as residues after every 2^19 terms.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.field.residues import multiply, total
from mirage_py.ugraph.field.values import Residues

Floats: TypeAlias = NDArray[np.float64]

EXACT_TERMS = 1 << 19
"""Terms that one float64 product may sum and stay exact; see the bound above."""

_LIMB_BITS = 16

_CACHED_ELEMENTS = 1 << 13
_LEAST_PIECE = 128
"""A matrix is cut into limbs a piece of its terms at a time, so that they stay in the cache."""

_DIRECT_PRODUCTS = 6_000
"""Up to so many products, forming and summing them is faster than arranging matrices (measured)."""


def contract(a: Residues, b: Residues, axes: tuple[int, ...], keepdims: bool, m: int) -> Residues:
    """The sum over ``axes`` (of the broadcast shape, not negative) of ``a * b``, modulo ``m``."""
    rank = max(a.ndim, b.ndim)
    a = a.reshape((1,) * (rank - a.ndim) + a.shape)
    b = b.reshape((1,) * (rank - b.ndim) + b.shape)
    shape = np.broadcast_shapes(a.shape, b.shape)
    if math.prod(shape) <= _DIRECT_PRODUCTS:
        return total(multiply(a, b, m), axes, keepdims, m)
    # What only one operand has along a summed axis can be summed before the product.
    a = _sum_lonely(a, b, axes, m)
    b = _sum_lonely(b, a, axes, m)
    shared = [axis for axis in axes if a.shape[axis] > 1]
    result = _contract_shared(a, b, shared, m) if shared else multiply(a, b, m)
    return result if keepdims else result.squeeze(axes)


def _sum_lonely(a: Residues, b: Residues, axes: tuple[int, ...], m: int) -> Residues:
    lonely = tuple(axis for axis in axes if a.shape[axis] > 1 and b.shape[axis] == 1)
    return total(a, lonely, True, m) if lonely else a


def _contract_shared(a: Residues, b: Residues, shared: list[int], m: int) -> Residues:
    """Contract axes that are longer than 1 in both operands; they stay with extent 1."""
    kept = [axis for axis in range(a.ndim) if axis not in shared]
    batch = [axis for axis in kept if a.shape[axis] > 1 and b.shape[axis] > 1]
    rows = [axis for axis in kept if axis not in batch and b.shape[axis] == 1]
    columns = [axis for axis in kept if axis not in batch and axis not in rows]

    def extents(of: Residues, some: list[int]) -> list[int]:
        return [of.shape[axis] for axis in some]

    batches, terms = math.prod(extents(a, batch)), math.prod(extents(a, shared))
    a_matrices = a.transpose(batch + rows + shared + columns).reshape(batches, -1, terms)
    b_matrices = b.transpose(batch + shared + columns + rows).reshape(batches, terms, -1)
    product = matmul(a_matrices, b_matrices, m)
    order = batch + rows + columns + shared
    split = product.reshape(extents(a, batch + rows) + extents(b, columns) + [1] * len(shared))
    return split.transpose(np.argsort(order))


def matmul(a: Residues, b: Residues, m: int) -> Residues:
    """Product modulo ``m`` of matrices [batch, rows, terms] and [batch, terms, columns]."""
    terms = a.shape[-1]
    product = _exact_matmul(a[..., :EXACT_TERMS], b[..., :EXACT_TERMS, :], m)
    for start in range(EXACT_TERMS, terms, EXACT_TERMS):
        stop = start + EXACT_TERMS
        product += _exact_matmul(a[..., start:stop], b[..., start:stop, :], m)
        product %= m
    return product


def _exact_matmul(a: Residues, b: Residues, m: int) -> Residues:
    """``matmul`` for up to ``EXACT_TERMS`` terms."""
    terms = a.shape[-1]
    piece = max(_LEAST_PIECE, _CACHED_ELEMENTS * terms // max(a.size, b.size))
    high, low, mixed = _limb_products(a[..., :piece], b[..., :piece, :])
    for start in range(piece, terms, piece):
        stop = start + piece
        more = _limb_products(a[..., start:stop], b[..., start:stop, :])
        high += more[0]
        low += more[1]
        mixed += more[2]
    mixed -= high
    mixed -= low
    # Horner's rule in 2^16: no step passes 2^54 before its remainder.
    product = high.astype(np.int64)
    for limb in (mixed, low):
        product %= m
        product <<= _LIMB_BITS
        product += limb.astype(np.int64)
    product %= m
    return product


def _limb_products(a: Residues, b: Residues) -> tuple[Floats, Floats, Floats]:
    a_high, a_low = _limbs(a)
    b_high, b_low = _limbs(b)
    high = a_high @ b_high
    low = a_low @ b_low
    a_high += a_low
    b_high += b_low
    return high, low, a_high @ b_high


def _limbs(a: Residues) -> tuple[Floats, Floats]:
    high = (a >> _LIMB_BITS).astype(np.float64)
    low = (a & ((1 << _LIMB_BITS) - 1)).astype(np.float64)
    return high, low
