"""Keyed random functions and the keyed random order, for what has no algebra in a finite field.

A keyed function depends on the seed, on its name and on the residue modulo p, and on nothing else:
equal real values have equal residues and so equal images (nothing true is refused because of it),
and different residues have unrelated images (nothing false passes because of it). What it lacks is
the laws of the real function.

Its image has a part modulo q as well, drawn from the residue modulo *p*: that alone stands for the
real value. So exp(log(s) + y) = exp(log(s)) * exp(y) holds although s, a sum of exponentials, has
no q part.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from mirage_py.ugraph.field.residues import Words
from mirage_py.ugraph.field.values import Residues

_INCREMENT: Final = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT: Final = np.uint64(31)

# Words that are made at a time: they stay in the cache, which is three times as fast (measured).
BLOCK = 1 << 14

_ORDER_BITS = 30
_ORDER_MASK = (1 << _ORDER_BITS) - 1


@lru_cache(maxsize=1024)
def derive_key(seed: int, name: str) -> int:
    """A 64-bit key for one use of the seed."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def keyed_words(arguments: Sequence[Residues], key: int) -> Words:
    """64 pseudo-random bits per element of the broadcast arguments, from all of them and the key.

    At least one axis long, whatever the arguments: NumPy warns of overflow in scalars and not in
    arrays.
    """
    state = np.full(1, key, dtype=np.uint64)
    for argument in arguments:
        state = scramble(state ^ scramble(np.atleast_1d(argument).astype(np.uint64)))
    return state


def keyed_residues(
    arguments: Sequence[Residues], key: int, moduli: tuple[int, int]
) -> tuple[Residues, Residues]:
    """Residues modulo each number for each element of the broadcast arguments, which are many: of
    ``keyed_words`` modulo the first, and of these scrambled once more modulo the second.
    """
    shape = np.broadcast_shapes(*(argument.shape for argument in arguments))
    size = math.prod(shape)
    found = [np.empty(size, dtype=np.uint64) for _ in moduli]
    flat = [np.broadcast_to(a, shape).reshape(-1) for a in arguments]
    buffers = [np.empty(min(size, BLOCK), dtype=np.uint64) for _ in range(3)]
    for start in range(0, size, BLOCK):
        block = slice(start, min(start + BLOCK, size))
        words, mixed, scratch = (b[: block.stop - start] for b in buffers)
        words[...] = key
        for argument in flat:
            mixed[...] = argument[block]
            _scramble_in_place(mixed, scratch)
            words ^= mixed
            _scramble_in_place(words, scratch)
        for part, modulus in zip(found, moduli, strict=True):
            _remainder(words, modulus, scratch, part[block])
            _scramble_in_place(words, scratch)
    first, second = (part.view(np.int64).reshape(shape) for part in found)
    return first, second


def scramble(words: Words) -> Words:
    """A bijection of 64-bit words in which every input bit moves every output bit.

    The step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    """
    mixed = words.copy()
    _scramble_in_place(mixed, np.empty_like(mixed))
    return mixed


def _scramble_in_place(words: Words, scratch: Words) -> None:
    words += _INCREMENT
    for shift, factor in _ROUNDS:
        np.right_shift(words, shift, out=scratch)
        words ^= scratch
        words *= factor
    np.right_shift(words, _LAST_SHIFT, out=scratch)
    words ^= scratch


def _remainder(words: Words, modulus: int, scratch: Words, found: Words) -> None:
    """By way of the quotient: division by one number is vectorised, and remainder is not."""
    np.floor_divide(words, np.uint64(modulus), out=scratch)
    np.multiply(scratch, np.uint64(modulus), out=scratch)
    np.subtract(words, scratch, out=found)


class MagnitudeOrder:
    """A keyed bijection of [0, 2^30): which of two magnitudes counts as the larger one.

    Being a bijection it has no ties, so ``max`` by it is associative, commutative and idempotent
    without exception.
    """

    __slots__ = ("_first", "_offset", "_second")

    def __init__(self, key: int) -> None:
        # Odd factors, so that multiplication modulo 2^30 can be undone; 30 bits times 30 bits fit
        # int64.
        self._offset = key & _ORDER_MASK
        self._first = derive_key(key, "first factor") & _ORDER_MASK | 1
        self._second = derive_key(key, "second factor") & _ORDER_MASK | 1

    def __call__(self, magnitudes: Residues) -> Residues:
        ranks = np.bitwise_xor(magnitudes, self._offset)
        for factor in (self._first, self._second):
            ranks ^= ranks >> 15
            ranks *= factor
            ranks &= _ORDER_MASK
        ranks ^= ranks >> 15
        return np.asarray(ranks)
