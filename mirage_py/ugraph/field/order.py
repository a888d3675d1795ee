"""Signs, maxima and comparisons by a keyed random total order of the field.

A finite field has no order that agrees with its sums, so a random one is drawn for each trial. What
it keeps of the real one: x and -x have opposite signs, the sign of a product is the product of the
signs, max is associative, commutative and idempotent, min(a, b) = -max(-a, -b), |x| = max(x, -x),
relu(x) = max(x, 0). What it does not keep (max(a + c, b + c) = max(a, b) + c, exp is monotone)
makes the test refuse some true equalities. A false one passes by chance only, but that chance is
large for a single element: relu(x) and x agree on every second one. Compare many.

Two random elements are never equal, and a program that asks whether they are would only ever be
tried where they are not: a token's label, compared with every index of the vocabulary, would never
be met. So ``a == b`` is a keyed function of ``a - b`` up to its sign, true for 0 and for one
difference in four, but for no other whole number of moderate size. What that gives up: a <= b is no
longer a < b or a == b, and 2 a == 2 b no longer a == b.

The order is that of the p part, and the q part goes with it: one choice for both is what makes
exp(where(c, a, b)) = where(c, exp(a), exp(b)) hold for c = a > b. The sign is the Legendre symbol
modulo p.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.field import residues
from mirage_py.ugraph.field.keyed import MagnitudeOrder, derive_key, keyed_words
from mirage_py.ugraph.field.ring import Axes, Real, RingOps, exact_rational, normal_axes
from mirage_py.ugraph.field.values import FieldArray, Residues

# Indices, and other numbers that programs write down, are equal if and only if they are the same.
_WHOLE = 1 << 24
_EQUAL_ONE_IN = 4


class OrderedOps(RingOps):
    """Adds max, min, clamp, relu, abs and the comparisons (which give 0 or 1) to the ring."""

    @cached_property
    def _magnitude_order(self) -> MagnitudeOrder:
        return MagnitudeOrder(derive_key(self.seed, f"order {self.field.p}"))

    def abs(self, a: FieldArray) -> FieldArray:
        """``a`` times its sign. It respects products, and abs(-a) = abs(a) = max(a, -a).

        Modulo p it is sqrt(a * a) as well. Modulo q that root is ``a`` times the sign modulo q, and
        the one sign that goes with the order is the sign modulo p: there the two may differ.
        """
        sign = residues.legendre(a.p, self.field.p)
        return self._each(lambda part, m: residues.multiply(part, sign, m), a)

    def relu(self, a: FieldArray) -> FieldArray:
        positive = residues.legendre(a.p, self.field.p) > 0
        return self._each(lambda part, m: np.where(positive, part, 0), a)

    def maximum(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return _select(self._keys(a) >= self._keys(b), a, b)

    def minimum(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return _select(self._keys(a) <= self._keys(b), a, b)

    def clamp(
        self, a: FieldArray, low: FieldArray | Real | None, high: FieldArray | Real | None
    ) -> FieldArray:
        """The middle one of ``a``, ``low`` and ``high``; None leaves that side open.

        That is min(max(a, low), high) if low <= high in the order of this trial. If it is not, this
        formula would be the constant ``high`` and the trial blind to ``a``, so the middle is taken
        either way.
        """
        bounds = [self._operand(bound) for bound in (low, high) if bound is not None]
        if not bounds:
            return a
        if len(bounds) == 1:
            return self.minimum(a, bounds[0]) if low is None else self.maximum(a, bounds[0])
        least, greatest = self.minimum(*bounds), self.maximum(*bounds)
        return self.minimum(self.maximum(a, least), greatest)

    def max(self, a: FieldArray, axes: Axes, keepdims: bool = False) -> FieldArray:
        """The greatest element over ``axes``."""
        return self._extreme(a, axes, keepdims, greatest=True)

    def min(self, a: FieldArray, axes: Axes, keepdims: bool = False) -> FieldArray:
        """The least element over ``axes``."""
        return self._extreme(a, axes, keepdims, greatest=False)

    def lt(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return _bits(self._keys(a) < self._keys(b))

    def le(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return _bits(self._keys(a) <= self._keys(b))

    def gt(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return _bits(self._keys(a) > self._keys(b))

    def ge(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return _bits(self._keys(a) >= self._keys(b))

    def eq(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return _bits(self._vanishes(self.sub(a, b)))

    def ne(self, a: FieldArray, b: FieldArray) -> FieldArray:
        return _bits(~self._vanishes(self.sub(a, b)))

    def where(self, condition: FieldArray, a: FieldArray, b: FieldArray) -> FieldArray:
        """``a`` where the condition is not 0, in the sense of ``ne``: also where it is no truth
        value. Has a q part if both have one.
        """
        return _select(~self._vanishes(condition), a, b)

    def orders_truly(self, constants: Sequence[Real]) -> bool:
        """Whether the order of this trial has these constants in their real order.

        A program with two bounds of one sign, min(max(x, 2), 5), does not depend on x in a trial
        that has 5 < 2: draw another seed. A negative constant, zero and a positive one are in order
        under every seed if their prime factors are 19 or less.
        """
        ascending = sorted(dict.fromkeys(exact_rational(constant) for constant in constants))
        keys = [int(self._keys(self.constant(constant))) for constant in ascending]
        return keys == sorted(keys)

    def _vanishes(self, difference: FieldArray) -> NDArray[np.bool_]:
        """Whether a difference counts as 0."""
        magnitude = np.minimum(difference.p, self.field.p - difference.p)
        if not (magnitude > _WHOLE).any():
            return np.asarray(magnitude == 0)
        words = keyed_words([magnitude], derive_key(self.seed, f"equality {self.field.p}"))
        chosen = (words % np.uint64(_EQUAL_ONE_IN) == 0).reshape(magnitude.shape)
        return np.asarray((magnitude == 0) | (chosen & (magnitude > _WHOLE)))

    def _keys(self, a: FieldArray) -> Residues:
        """Distinct integers in the order of the residues: key(-x) = -key(x), key(0) = 0."""
        p = self.field.p
        keys = self._magnitude_order(np.minimum(a.p, p - a.p))
        keys += 1
        keys *= residues.legendre(a.p, p)
        return keys

    def _extreme(self, a: FieldArray, axes: Axes, keepdims: bool, *, greatest: bool) -> FieldArray:
        over = normal_axes(axes, a.ndim)
        kept = tuple(axis for axis in range(a.ndim) if axis not in over)
        order = kept + over
        flat_shape = tuple(a.shape[axis] for axis in kept) + (-1,)
        if keepdims:
            shape = tuple(1 if axis in over else extent for axis, extent in enumerate(a.shape))
        else:
            shape = flat_shape[:-1]
        keys = self._keys(a).transpose(order).reshape(flat_shape)
        chosen = (keys.argmax(-1) if greatest else keys.argmin(-1))[..., None]

        def gather(part: Residues) -> Residues:
            rows = part.transpose(order).reshape(flat_shape)
            return np.take_along_axis(rows, chosen, -1).reshape(shape)

        return FieldArray(gather(a.p), None if a.q is None else gather(a.q))

    def _operand(self, value: FieldArray | Real) -> FieldArray:
        return value if isinstance(value, FieldArray) else self.constant(value)


def _select(choice: NDArray[np.bool_], a: FieldArray, b: FieldArray) -> FieldArray:
    p_part = np.where(choice, a.p, b.p)
    if a.q is None or b.q is None:
        return FieldArray(p_part, None)
    return FieldArray(p_part, np.where(choice, a.q, b.q))


def _bits(truth: NDArray[np.bool_]) -> FieldArray:
    bits = np.asarray(truth).astype(np.int64)
    return FieldArray(bits, bits)
