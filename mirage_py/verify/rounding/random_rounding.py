"""float32 arithmetic that rounds up or down at random, which exposes results that rounding decides.

Source: J. Vignes, A stochastic arithmetic for reliable scientific computation, Mathematics and
Computers in Simulation 35 (1993).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.node import Attr
from mirage_py.verify.rounding.kernel_meaning import KernelMeaning


class RandomRounding(KernelMeaning):
    """What is exact stays so; any other result is one of its two neighbours, a new choice each time
    that it is computed. One value that is read twice is the same twice, one that is computed twice
    is not: kernels may add up in different orders, and compilers fuse a product into a sum here and
    not there.
    """

    def __init__(self, sets: int, operands: DType | None, seed: int) -> None:
        super().__init__(np.float32, sets, operands)
        self._double = KernelMeaning(np.float64, sets, operands)
        self._draw = np.random.default_rng(seed)

    def apply(self, op: str, attr: Attr, args: Sequence[FloatArray]) -> FloatArray:
        single = super().apply(op, attr, args)
        if op == "cast" or single.dtype == np.bool_:
            return single
        return self._either(single, self._double.apply(op, attr, args))

    def power(self, x: FloatArray, exponent: float) -> FloatArray:
        return self._either(super().power(x, exponent), self._double.power(x, exponent))

    def sum(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._either(super().sum(x, axes), self._double.sum(x, axes))

    def contract(self, a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._either(super().contract(a, b, axes), self._double.contract(a, b, axes))

    def rescale(self, old: FloatArray, new: FloatArray, degree: int) -> FloatArray:
        single = super().rescale(old, new, degree)
        return self._either(single, self._double.rescale(old, new, degree))

    def _either(self, single: FloatArray, exact: FloatArray) -> FloatArray:
        """A neighbour of ``exact``; or ``single``, where a sum lost digits on the way to it."""
        with np.errstate(all="ignore"):
            nearest = np.asarray(exact, np.float32)
            towards = np.where(exact > nearest, np.float32(np.inf), np.float32(-np.inf))
            other = np.where(nearest == exact, single, np.nextafter(nearest, towards))
            chosen = np.isfinite(nearest) & (self._draw.random(nearest.shape) < 0.5)
        return np.asarray(np.where(chosen, other, nearest), np.float32)
