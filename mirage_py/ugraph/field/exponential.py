"""The exponential: from residues modulo q to powers modulo p, by two table look-ups."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mirage_py.ugraph.field.residues import multiply
from mirage_py.ugraph.field.values import Residues

_LOW_BITS = 15
"""An exponent below 2^30 is two halves of 15 bits: a table of 256 KiB for each half."""


class PowerTable:
    """``base ** x`` modulo p for every x in [0, 2^30)."""

    __slots__ = ("_high", "_low", "_p")

    def __init__(self, base: int, p: int) -> None:
        self._p = p
        self._low = _first_powers(base, p)
        self._high = _first_powers(pow(base, 1 << _LOW_BITS, p), p)

    def __call__(self, exponents: Residues) -> Residues:
        """Residues modulo p, of the shape of ``exponents``."""
        powers = self._low.take(exponents & ((1 << _LOW_BITS) - 1))
        powers *= self._high.take(exponents >> _LOW_BITS)
        powers %= self._p
        return np.asarray(powers)


@lru_cache(maxsize=32)
def power_table(base: int, p: int) -> PowerTable:
    """The table for one base. The last few are kept: half a megabyte and a millisecond each."""
    return PowerTable(base, p)


def _first_powers(base: int, p: int) -> Residues:
    powers = np.ones(1, dtype=np.int64)
    while powers.size < 1 << _LOW_BITS:
        shift = np.asarray(pow(base, powers.size, p), dtype=np.int64)
        powers = np.concatenate([powers, multiply(powers, shift, p)])
    return powers
