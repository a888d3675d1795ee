"""Exponentials, powers and keyed functions, on top of the ring and the order."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np

from mirage_py.ugraph.field import keyed, residues
from mirage_py.ugraph.field.exponential import PowerTable, power_table
from mirage_py.ugraph.field.order import OrderedOps
from mirage_py.ugraph.field.powers import rational_exponent
from mirage_py.ugraph.field.ring import Real, exact_rational
from mirage_py.ugraph.field.values import FieldArray

_HALF: Final = Fraction(1, 2)


class FieldOps(OrderedOps):
    """One trial of the probabilistic equivalence test: operators over one field pair, for one seed.

    ``seed`` picks the base of the exponential, the order and the keyed functions, and with a key
    the random inputs. All methods are pure and broadcast; ``DivisionByZero`` asks the caller for
    other inputs. With ``fills`` there is none: 1 / 0 is a random element, in each call another one,
    and ``zero_divisors`` counts these calls. What does not change with it is not divided by zero.

    Source: Mirage (OSDI 2025), section on probabilistic equivalence verification, Theorems 2 and 3.
    """

    @cached_property
    def _exponential(self) -> PowerTable:
        # The theorem wants a random q-th root of unity. Every power 1..q-1 of one generator is one.
        exponent = 1 + keyed.derive_key(self.seed, f"base {self.field.p}") % (self.field.q - 1)
        return power_table(pow(self.field.generator, exponent, self.field.p), self.field.p)

    def exp(self, a: FieldArray) -> FieldArray:
        """``g ** (q part)`` modulo p, g of order q: exp(a) exp(b) = exp(a + b). Has no q part.

        Without a q part to start from, the exponent is a keyed odd function of the p part, so of
        the laws only exp(-a) = 1 / exp(a) and exp(0) = 1 remain. The result is a square either way,
        that is, positive.
        """
        exponents = a.q
        if exponents is None:
            exponents = self.odd("exp", a).q
            assert exponents is not None
        return FieldArray(self._exponential(exponents), None)

    def sqrt(self, a: FieldArray) -> FieldArray:
        """The power 1/2: sqrt(a b) = sqrt(a) sqrt(b), and sqrt(a)^2 = a where ``a`` is a square.

        Where it is not (where it is "negative"), sqrt(a) = -sqrt(-a); see ``rational_exponent``.
        """
        return self.pow_const(a, _HALF)

    def rsqrt(self, a: FieldArray) -> FieldArray:
        """``1 / sqrt(a)``. Raises ``DivisionByZero``."""
        return self.pow_const(a, -_HALF)

    def pow_const(self, a: FieldArray, exponent: Real) -> FieldArray:
        """``a ** exponent`` for a constant: a map that respects products, with exp(a)^r = exp(r a).

        a^-r = 1 / a^r, and a^(n + f) = a^n a^f for 0 < f < 1, so the power 3/2 is a sqrt(a). It
        exists for every exponent with a finite decimal text, and for others whose denominator is
        prime to (q - 1) / 2; the rest are as in ``pow``. Raises ``DivisionByZero`` for a negative
        power of zero.
        """
        r = exact_rational(exponent)
        if r < 0 and r.denominator == 1:
            return self.reciprocal(self.pow_const(a, -r))
        exponents = {m: rational_exponent(r, m) for m in self._moduli}
        known = {m: k for m, k in exponents.items() if k is not None}
        if len(known) < len(exponents):
            return self.pow(a, self.constant(r))

        def raised(base: FieldArray) -> FieldArray:
            if r < 0 and not (base.p.all() and (base.q is None or base.q.all())):
                raise residues.DivisionByZero(f"zero to the power {r}")
            return self._each(lambda part, m: residues.power(part, known[m], m), base)

        return self._beside_zeros(raised, a) if r < 0 else raised(a)

    def pow(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """``exp(b log(a))``, and so keyed: a^b a^c = a^(b + c), but a^2 is not a * a. No q part."""
        return self.exp(self.mul(b, self.log(a)))

    def log(self, a: FieldArray) -> FieldArray:
        """A keyed random function."""
        return self.keyed("log", a)

    def floor(self, a: FieldArray) -> FieldArray:
        """A keyed random function."""
        return self.keyed("floor", a)

    def fmod(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """A keyed random function of both."""
        return self.keyed("fmod", a, b)

    def bit_and(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """A keyed random function of both: a code is any number, and goes on as such."""
        return self.keyed("bit_and", a, b)

    def bit_or(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """A keyed random function of both."""
        return self.keyed("bit_or", a, b)

    def bit_xor(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """A keyed random function of both."""
        return self.keyed("bit_xor", a, b)

    def shift_right(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """A keyed random function of both."""
        return self.keyed("shift_right", a, b)

    def cast(self, a: FieldArray, to: str) -> FieldArray:
        """The value itself, or a keyed random odd function for a type whose rounding shows."""
        return self.odd(f"cast {to}", a) if self.reading.is_opaque(to) else a

    def keyed(self, name: str, *arguments: FieldArray) -> FieldArray:
        """A random function of the p parts, one for each name: for what has no field meaning.

        Equal arguments give equal results, and no other law holds. The result has both parts.
        """
        shape = np.broadcast_shapes(*(argument.shape for argument in arguments))
        key = keyed.derive_key(self.seed, f"function {name} {self.field.p}")
        parts = [argument.p for argument in arguments]
        if math.prod(shape) > keyed.BLOCK:
            return FieldArray(*keyed.keyed_residues(parts, key, (self.field.p, self.field.q)))
        words = keyed.keyed_words(parts, key)
        p_part = words % np.uint64(self.field.p)
        q_part = keyed.scramble(words) % np.uint64(self.field.q)
        return FieldArray(
            p_part.astype(np.int64).reshape(shape), q_part.astype(np.int64).reshape(shape)
        )

    def odd(self, name: str, a: FieldArray) -> FieldArray:
        """A keyed function f of one argument with f(-a) = -f(a) in both parts, and f(0) = 0."""
        side = np.sign(self.field.p - 2 * a.p) * (a.p > 0)
        return self._each(lambda part, m: residues.multiply(part, side, m), self.even(name, a))

    def even(self, name: str, a: FieldArray) -> FieldArray:
        """A keyed function f of one argument with f(-a) = f(a)."""
        return self.keyed(name, FieldArray(np.minimum(a.p, self.field.p - a.p), None))
