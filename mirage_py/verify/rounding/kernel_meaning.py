"""float32 arithmetic as in kernels, together with float64, on many sets of inputs at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret.buffers import Buffer, FloatArray, FloatBuffer, Index
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.element_types import round_to

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


class KernelMeaning(FloatMeaning):
    """Arithmetic of NumPy in ``dtype``: every result is rounded, and what is too large is infinite.

    Arrays have one more axis behind the others, for ``sets`` sets of inputs side by side.

    Truth values (arrays of bool, results of comparisons) stay what they are, and a product with one
    is a selection, as back ends emit it: 0 where it is false, whatever the other factor is.

    Operands of contractions have no more significant bits than a value of type ``operands``: where
    all inputs are halves, tensor cores are fed with halves. Their range is that of float32; which
    type an operand really has is for mirage_py.codegen.lowering.precision to decide.
    """

    def __init__(
        self, dtype: type[np.floating[Any]], sets: int, operands: DType | None = None
    ) -> None:
        self._dtype = dtype
        self._sets = sets
        self._operands = operands

    def apply(self, op: str, attr: Attr, args: Sequence[FloatArray]) -> FloatArray:
        if op == "mul":
            for mask, other in ((args[0], args[1]), (args[1], args[0])):
                if mask.dtype == np.bool_:
                    return self.select(mask, self._rounded(other))
        if op == "cast" and isinstance(attr, DType) and self._dtype != np.float64:
            return self._rounded(round_to(np.asarray(args[0], np.float64), attr))
        result = super().apply(op, attr, [self._rounded(a) for a in args])
        return _truth(result) if op in _COMPARISONS else self._rounded(result)

    def power(self, x: FloatArray, exponent: float) -> FloatArray:
        return self._rounded(super().power(self._rounded(x), exponent))

    def select(self, mask: FloatArray, x: FloatArray) -> FloatArray:
        return self._rounded(super().select(mask, x))

    def const(self, value: float) -> FloatArray:
        return self._rounded(np.full(1, value))

    def size(self, extent: int) -> FloatArray:
        return self.const(extent)

    def index(self, values: NDArray[np.int64]) -> FloatArray:
        return self._rounded(super().index(values)[..., np.newaxis])

    def mask(self, truth: NDArray[np.bool_]) -> FloatArray:
        return _truth(super().mask(truth)[..., np.newaxis])

    def sum(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._rounded(super().sum(self._rounded(x), axes))

    def max(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._rounded(super().max(self._rounded(x), axes))

    def contract(self, a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
        left, right = (self._rounded(self._operand(x)) for x in (a, b))
        return self._rounded(super().contract(left, right, axes))

    def rescale(self, old: FloatArray, new: FloatArray, degree: int) -> FloatArray:
        return self._rounded(super().rescale(old, new, degree))

    def shape(self, x: FloatArray) -> tuple[int, ...]:
        return x.shape[:-1]

    def reshape(self, x: FloatArray, shape: Sequence[int]) -> FloatArray:
        return x.reshape((*shape, x.shape[-1]))

    def transpose(self, x: FloatArray, perm: Sequence[int]) -> FloatArray:
        return np.transpose(x, (*perm, x.ndim - 1))

    def stretch(self, x: FloatArray, shape: Sequence[int]) -> FloatArray:
        return np.broadcast_to(x, (*shape, self._sets))

    def load(self, x: FloatArray, index: Index) -> FloatArray:
        part: FloatArray = np.asarray(x[index])
        return part if part.dtype == np.bool_ else self._rounded(part)

    def integers(self, x: FloatArray) -> NDArray[np.int64]:
        return super().integers(x[..., 0])  # every set has the same

    def buffer(self, shape: Sequence[int]) -> Buffer[FloatArray]:
        return FloatBuffer((*shape, self._sets))

    def _operand(self, x: FloatArray) -> FloatArray:
        return x if self._operands is None else with_bits_of(self._operands, x)

    def _rounded(self, x: FloatArray) -> FloatArray:
        if x.dtype == self._dtype:
            return x
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(x, dtype=self._dtype)


def with_bits_of(dtype: DType, x: FloatArray) -> FloatArray:
    """Rounded to the significant bits of the type, ties to even, whatever its range is."""
    # On the bits of float64: the last ones of the fraction go, a carry goes into the exponent, and
    # infinities and NaN stay. Twice as fast as frexp and ldexp.
    dropped = 52 + int(math.log2(2.0 * dtype.unit_roundoff))
    bits = np.array(x, np.float64, order="C").view(np.int64)
    half = bits >> dropped
    half &= 1
    half += (1 << dropped - 1) - 1
    bits += half
    bits &= -1 << dropped
    return bits.view(np.float64)


def common_half(program: Program) -> DType | None:
    """The half type of all inputs in floating point, if they share one."""
    types = {t.dtype.name: t.dtype for t in program.inputs if t.dtype.is_float}
    if len(types) != 1:
        return None
    (found,) = types.values()
    return found if found.is_half else None


def _truth(x: FloatArray) -> FloatArray:
    return np.asarray(x != 0)
