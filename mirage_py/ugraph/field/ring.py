"""Sums and products of field arrays, constants and random inputs: what holds in any ring."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from mirage_py.errors import UnsupportedError
from mirage_py.reasons import Code
from mirage_py.ugraph.field import contraction, residues
from mirage_py.ugraph.field.primes import Field
from mirage_py.ugraph.field.reading import Reading
from mirage_py.ugraph.field.values import FieldArray, Residues

Axes: TypeAlias = int | Sequence[int]
Real: TypeAlias = float | int | Fraction


class RingOps:
    """Arithmetic modulo p and modulo q side by side. Operands broadcast as in NumPy.

    A result has a q part if every operand has one. One object stands for one trial: programs are
    compared by evaluating both with the same object on the same inputs. ``reading`` says what
    stands for constants and casts.
    """

    def __init__(
        self,
        field: Field,
        seed: int,
        reading: Reading = Reading(),  # noqa: B008
        fills: str = "",
    ) -> None:
        self.field = field
        self.seed = seed
        self.reading = reading
        self.zero_divisors = 0
        self.fills = fills
        self._moduli = (field.p, field.q)
        self._constants: dict[Fraction, FieldArray] = {}

    def add(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return self._both(residues.add, a, b)

    def sub(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return self._both(residues.subtract, a, b)

    def mul(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return self._both(residues.multiply, a, b)

    def neg(self, a: FieldArray) -> FieldArray:
        return self._each(residues.negate, a)

    def square(self, a: FieldArray) -> FieldArray:
        return self._both(residues.multiply, a, a)

    def reciprocal(self, a: FieldArray) -> FieldArray:
        """``1 / a``. Raises ``DivisionByZero`` where an element is zero modulo p or modulo q."""
        return self._beside_zeros(lambda whole: self._each(residues.inverse, whole), a)

    def reciprocal_no_nan(self, a: FieldArray) -> FieldArray:
        """``1 / a``, and 0 for 0: the power m - 2, by Fermat."""
        return self._each(lambda part, m: residues.power(part, m - 2, m), a)

    def div(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """``a / b``. Raises ``DivisionByZero`` where ``b`` is zero modulo p or modulo q."""
        return self.mul(a, self.reciprocal(b))

    def blend(self, weight: FieldArray, a: FieldArray, b: FieldArray) -> FieldArray:
        """``weight * a + (1 - weight) * b``, which selects where the weight is 0 or 1."""
        return self.add(b, self.mul(weight, self.sub(a, b)))

    def sum(self, a: FieldArray, axes: Axes, keepdims: bool = False) -> FieldArray:
        """Sum over ``axes``, of up to 2^32 terms."""
        over = normal_axes(axes, a.ndim)
        return self._each(lambda part, m: residues.total(part, over, keepdims, m), a)

    def contract(
        self, a: FieldArray, b: FieldArray, axes: Axes, keepdims: bool = False
    ) -> FieldArray:
        """Sum over ``axes`` of ``a * b``; the axes are those of the broadcast shape.

        Equal to ``sum(mul(a, b), axes)`` without forming the products: a matrix product is
        ``contract(a[M, K, 1], b[1, K, N], axes=1)``. For up to 2^32 terms.
        """
        over = normal_axes(axes, max(a.ndim, b.ndim))
        return self._both(lambda x, y, m: contraction.contract(x, y, over, keepdims, m), a, b)

    def constant(self, value: Real) -> FieldArray:
        """The exact rational a number's decimal text means (1e-6 is 1 / 10^6), with shape (), or
        what the reading has for it.

        Raises ``UnsupportedError`` for an infinity or NaN, ``DivisionByZero`` if a denominator is a
        multiple of a prime of this field.
        """
        rational = exact_rational(value)
        known = self._constants.get(rational)
        if known is None:
            try:
                residue = self.reading.residue
                parts = [np.array(residue(rational, m, self.seed)) for m in self._moduli]
            except ValueError:
                raise residues.DivisionByZero(f"the denominator of {rational} is zero") from None
            p_part, q_part = parts
            known = FieldArray(p_part, q_part)
            self._constants[rational] = known
        return known

    def random(self, shape: Sequence[int], key: str) -> FieldArray:
        """Independent uniform non-zero elements: a function of seed, field and ``key``."""
        draw = self._generator("elements", key)
        p_part, q_part = (draw.integers(1, m, size=tuple(shape)) for m in self._moduli)
        return FieldArray(np.asarray(p_part), np.asarray(q_part))

    def random_bits(self, shape: Sequence[int], key: str) -> FieldArray:
        """Independent fair bits, the same in both parts: a function of seed, field and ``key``."""
        bits = np.asarray(self._generator("bits", key).integers(0, 2, size=tuple(shape)))
        return FieldArray(bits, bits)

    def equal(self, a: FieldArray, b: FieldArray) -> bool:
        """Whether shapes and parts agree; the q parts count only where both values have one.

        A value reached by way of an exponential lacks the q part that another way to it keeps.
        """
        if not np.array_equal(a.p, b.p):
            return False
        return a.q is None or b.q is None or np.array_equal(a.q, b.q)

    def _generator(self, use: str, key: str) -> np.random.Generator:
        # NumPy makes the same words of a list, one by one, in five times the time.
        high, low = divmod(self.seed % (1 << 64), 1 << 32)
        words = [low, *filter(None, [high]), self.field.p, *use.encode(), 0, *key.encode()]
        sequence = np.random.SeedSequence(np.array(words, np.uint32))
        return np.random.Generator(np.random.PCG64(sequence))

    def _beside_zeros(
        self, function: Callable[[FieldArray], FieldArray], a: FieldArray
    ) -> FieldArray:
        """A function that has no value for 0: where zeros are filled, random elements there, which
        are other ones in every call.
        """
        zero = a.p == 0 if a.q is None else (a.p == 0) | (a.q == 0)
        if not self.fills or not zero.any():
            return function(a)
        self.zero_divisors += 1
        found = function(self._each(lambda part, m: np.where(zero, 1, part), a))
        drawn = self.random(a.shape, f"{self.fills} {self.zero_divisors}")
        if found.q is None or drawn.q is None:
            return FieldArray(np.where(zero, drawn.p, found.p), None)
        return FieldArray(np.where(zero, drawn.p, found.p), np.where(zero, drawn.q, found.q))

    def _each(self, function: Callable[[Residues, int], Residues], a: FieldArray) -> FieldArray:
        p_part = function(a.p, self.field.p)
        return FieldArray(p_part, None if a.q is None else function(a.q, self.field.q))

    def _both(
        self, function: Callable[[Residues, Residues, int], Residues], a: FieldArray, b: FieldArray
    ) -> FieldArray:
        p_part = function(a.p, b.p, self.field.p)
        if a.q is None or b.q is None:
            return FieldArray(p_part, None)
        return FieldArray(p_part, function(a.q, b.q, self.field.q))


# What stands for minus infinity, which programs do nothing with but select it
# (mirage_py.ugraph.rewrite.masks): a number that none writes.
_MINUS_INFINITY = Fraction(-(2**89 - 1), 2**61 - 1)


def exact_rational(value: Real) -> Fraction:
    """The rational number a Python or NumPy number stands for when it is written in decimal, or one
    that stands for minus infinity. Raises UnsupportedError for NaN and infinity.
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int | np.integer):
        return Fraction(int(value))
    number = float(value)
    if number == -math.inf:
        return _MINUS_INFINITY
    if not math.isfinite(number):
        raise UnsupportedError(
            f"the constant {number} has no value in a finite field",
            why="a field has neither infinities nor NaN",
            code=Code.NO_FIELD_VALUE,
            repair="write a mask as a 0/1 factor behind the exponential",
        )
    return Fraction(repr(number))


def normal_axes(axes: Axes, rank: int) -> tuple[int, ...]:
    """The axes as distinct numbers in [0, rank). Raises ``ValueError`` for one out of range."""
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    for axis in given:
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} of a tensor with {rank} axes")
    return tuple(sorted(dict.fromkeys(axis % rank for axis in given)))
