"""Real numbers that are enclosed by an interval and named by a residue, so that ties are seen.

The sum of .1, .2 and .7 is 1, which no interval of radius above 0 tells. So each value also has a
residue modulo a prime near 2^31, computed exactly: sums, products and quotients of decimals and
floats have one, other functions are keyed random functions of the residues of their operands. Two
values whose intervals overlap and whose residues agree are taken for the same number; that they are
not has a probability of 2^-31. Residues that differ say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isfinite

import numpy as np

from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.field import residues as modular
from mirage_py.ugraph.field.keyed import derive_key, keyed_words
from mirage_py.ugraph.field.values import Residues
from mirage_py.ugraph.interpret.buffers import FloatArray, Index
from mirage_py.verify.intervals.intervals import UNIT, Interval

PRIME = FIELDS[0].p
# Roots are looked for among multiples of this.
_DECIMALS = 10**8


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """A tensor of them; both parts have the same shape, and the last axis counts draws."""

    interval: Interval
    residue: Residues

    def __getitem__(self, index: Index | tuple[slice | int, ...]) -> Exact:
        mid, rad = self.interval.mid[index], self.interval.rad[index]
        return Exact(Interval(np.asarray(mid), np.asarray(rad)), np.asarray(self.residue[index]))

    def put(self, index: tuple[slice | int, ...], value: Exact) -> None:
        """Overwrite some elements."""
        self.interval.mid[index] = value.interval.mid
        self.interval.rad[index] = value.interval.rad
        self.residue[index] = value.residue

    def copy(self) -> Exact:
        """Another tensor with the same values."""
        mid, rad = self.interval.mid.copy(), self.interval.rad.copy()
        return Exact(Interval(mid, rad), self.residue.copy())


def of_decimals(values: FloatArray) -> Exact:
    """Floats of few bits, and elsewhere the numbers that their decimal text means."""
    few = np.rint(values * 2.0**46) == values * 2.0**46
    residue = of_floats(values)
    others = values[~few]
    if others.size:
        known, places = np.unique(others, return_inverse=True)
        texts = np.array([of_decimal(float(x)) for x in known], dtype=np.int64)
        residue[~few] = texts[places]
    return Exact(Interval(values, np.where(few, 0.0, UNIT * np.abs(values))), residue)


def of_floats(values: FloatArray) -> Residues:
    """The residues of float64 numbers; of what is no number, 0."""
    with np.errstate(all="ignore"):
        parts, powers = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.asarray(parts * 2.0**53).astype(np.int64) % PRIME
    return modular.multiply(whole, _POWERS[powers + _MOST_POWER], PRIME)


def _powers_of_two(most: int) -> Residues:
    return np.array([pow(2, n - 53, PRIME) for n in range(-most, most + 1)], dtype=np.int64)


_MOST_POWER = 1100
_POWERS = _powers_of_two(_MOST_POWER)


@lru_cache(maxsize=4096)
def of_decimal(value: float) -> int:
    """The residue of the number that the decimal text of a float means; of an infinity 0."""
    if not isfinite(value):
        return 0
    number = Fraction(repr(value))
    return number.numerator * pow(number.denominator, -1, PRIME) % PRIME


def rational_residue(op: str, args: Sequence[Residues]) -> Residues | None:
    """Of an operator that is a rational function; of others None."""
    if op == "cast":
        return args[0]
    if op == "neg":
        return modular.negate(args[0], PRIME)
    if op == "square":
        return modular.multiply(args[0], args[0], PRIME)
    if op == "add":
        return modular.add(args[0], args[1], PRIME)
    if op == "sub":
        return modular.subtract(args[0], args[1], PRIME)
    if op == "mul":
        return modular.multiply(args[0], args[1], PRIME)
    if op == "div":
        return modular.multiply(args[0], inverse(args[1]), PRIME)
    return None


def other_residue(op: str, args: Sequence[Exact]) -> Residues:
    """Of any other operator: that of an operand which it selects, or a random one."""
    zero = Exact(Interval(np.zeros(1), np.zeros(1)), np.zeros(1, dtype=np.int64))
    if op == "where":
        return chosen(args)
    if op == "abs":
        opposite = Exact(args[0].interval, modular.negate(args[0].residue, PRIME))
        return _larger(args[0], zero, args[0].residue, opposite.residue)
    if op == "relu":
        return _larger(args[0], zero, args[0].residue, zero.residue)
    if op in ("maximum", "minimum"):
        one, other = args if op == "maximum" else (args[1], args[0])
        return _larger(one, other, args[0].residue, args[1].residue)
    if op == "reciprocal_no_nan":
        return inverse(args[0].residue)
    if op in ("sqrt", "rsqrt"):
        root = root_residue(args[0])
        return root if op == "sqrt" else inverse(root)
    return random_residue(op, args)


def chosen(args: Sequence[Exact]) -> Residues:
    """Of a selection whose condition is known."""
    condition, a, b = args
    with np.errstate(all="ignore"):
        is_not_zero = np.abs(condition.interval.mid) > condition.interval.rad
    is_zero = (condition.interval.mid == 0) & (condition.interval.rad == 0)
    found = np.where(is_not_zero, a.residue, b.residue)
    known = is_not_zero | is_zero
    return found if known.all() else np.where(known, found, random_residue("where", args))


def _larger(one: Exact, other: Exact, over: Residues, under: Residues) -> Residues:
    """``over`` where the first is surely larger or the same, ``under`` where the second is."""
    difference = one.interval.mid - other.interval.mid
    with np.errstate(all="ignore"):
        known = np.abs(difference) > one.interval.rad + other.interval.rad
    known = known | (one.residue == other.residue)
    found = np.where(difference >= 0, over, under)
    return found if known.all() else np.where(known, found, random_residue("larger", [one, other]))


def root_residue(x: Exact) -> Residues:
    """The decimal whose square it is, where there is one."""
    with np.errstate(all="ignore"):
        root = np.rint(np.sqrt(np.maximum(x.interval.mid, 0.0)) * _DECIMALS)
    is_short = np.isfinite(root) & (root < 2.0**53)
    whole = np.where(is_short, root, 0.0).astype(np.int64) % PRIME
    decimal = modular.multiply(whole, np.full(1, pow(_DECIMALS, -1, PRIME), np.int64), PRIME)
    is_root = modular.multiply(decimal, decimal, PRIME) == x.residue
    return np.where(is_root, decimal, random_residue("sqrt", [x]))


def inverse(x: Residues) -> Residues:
    """Of 0, where there is none, 0."""
    return np.where(x == 0, 0, modular.inverse(np.where(x == 0, 1, x), PRIME))


def random_residue(name: str, args: Sequence[Exact]) -> Residues:
    """A keyed random function of the residues of the operands."""
    words = keyed_words([a.residue for a in args], derive_key(0, name))
    return np.asarray(words % np.uint64(PRIME)).astype(np.int64)
