"""Constants and casts of a program, as elements of a field.

The sign of an element is a fact of the field (is it a square?), so a positive constant may be
"negative" there: 31 is, and relu(-31 x) would be -31 relu(x). Such a prime factor is exchanged for
a random square: what holds for all values of it holds for its own. All constants with that factor
change alike, so that products of constants stay what they are. Sums of them do not, and something
right may be refused for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from mirage_py.ugraph.field.keyed import derive_key

# What is left without a prime factor below this is taken for one.
_TRIED: Final = 2000


@dataclass(frozen=True, slots=True)
class Reading:
    """How one trial reads a program.

    ``opaque_casts``   types to which a cast is a random function; to others it is the value itself
    ``positive``       prime factors of constants that are no squares are exchanged for random ones
    ``generic``        all prime factors are
    ``kept``           but for these, which divide sizes
    """

    opaque_casts: tuple[str, ...] = ()
    positive: bool = False
    generic: bool = False
    kept: tuple[int, ...] = ()

    def is_opaque(self, kind: str) -> bool:
        """Whether a cast to a type is no more than a function."""
        return kind in self.opaque_casts

    def residue(self, value: Fraction, m: int, seed: int) -> int:
        """The element modulo the prime ``m``; ValueError where the denominator is 0 there."""
        if not (self.positive or self.generic):
            return value.numerator * pow(value.denominator, -1, m) % m
        found = 1 if value > 0 else -1 if value else 0
        for factor, power in _factors(abs(value.numerator)) if value else ():
            found = found * pow(self._element(factor, m, seed), power, m) % m
        for factor, power in _factors(value.denominator):
            found = found * pow(self._element(factor, m, seed), -power, m) % m
        return found % m

    def degrees(self, value: Fraction) -> tuple[int, int]:
        """Of numerator and denominator, in the roots that are drawn for prime factors."""
        if not self.generic or not value:
            return 0, 0
        parts = abs(value.numerator), value.denominator
        over, under = (
            sum(2 * power for factor, power in _factors(part) if factor not in self.kept)
            for part in parts
        )
        return over, under

    def _element(self, factor: int, m: int, seed: int) -> int:
        is_square = pow(factor, (m - 1) // 2, m) == 1
        if factor in self.kept or (is_square and not self.generic):
            return factor % m
        root = 1 + derive_key(seed, f"constant {factor} modulo {m}") % (m - 1)
        return root * root % m


def prime_factors(number: int) -> tuple[int, ...]:
    """The prime factors below 2000, and the remaining factor."""
    return tuple(factor for factor, _ in _factors(number))


@lru_cache(maxsize=4096)
def _factors(number: int) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    factor = 2
    while factor < _TRIED and factor * factor <= number:
        power = 0
        while number % factor == 0:
            number //= factor
            power += 1
        if power:
            found.append((factor, power))
        factor += 1
    if number > 1:
        found.append((number, 1))
    return tuple(found)
