"""Meanings: the arithmetic in which programs are evaluated, floats or a finite field.

The interpreter knows dimensions, tiles and loops; a Meaning knows numbers. Its arrays are
full-rank: one axis per dimension of the program, in the program's order, with extent 1 where a
value does not depend on the dimension. Broadcasting by name is then broadcasting by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import UnsupportedError
from mirage_py.reasons import Code
from mirage_py.ugraph.field.arithmetic import FieldOps
from mirage_py.ugraph.field.values import FieldArray
from mirage_py.ugraph.interpret.buffers import Buffer, FieldBuffer, FloatArray, FloatBuffer, Index
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.operators import operator

A = TypeVar("A")


class Meaning(Protocol[A]):
    """A domain of numbers. ``axes`` of a reduction stay, with extent 1."""

    def apply(self, op: str, attr: Attr, args: Sequence[A]) -> A:
        """An elementwise operator."""

    def power(self, x: A, exponent: float) -> A:
        """x to a constant power."""

    def select(self, mask: A, x: A) -> A:
        """``mask * x``: where the mask is 0 the result is 0, whatever x is."""

    def shift(self, x: A, key: str) -> A:
        """x where it serves to shift exponents only; a domain may take any other value for it."""

    def const(self, value: float) -> A:
        """A scalar, of shape ()."""

    def size(self, extent: int) -> A:
        """The extent of a dimension, of shape ()."""

    def index(self, values: NDArray[np.int64]) -> A:
        """Integers as numbers."""

    def mask(self, truth: NDArray[np.bool_]) -> A:
        """1 where true, 0 where false."""

    def sum(self, x: A, axes: Sequence[int]) -> A:
        """Sum over axes."""

    def max(self, x: A, axes: Sequence[int]) -> A:
        """Maximum over axes."""

    def contract(self, a: A, b: A, axes: Sequence[int]) -> A:
        """The sum over axes of a * b, without forming the products."""

    def rescale(self, old: A, new: A, degree: int) -> A:
        """exp(old - new) ** degree, and 1 where both are the same infinity."""

    def shape(self, x: A) -> tuple[int, ...]:
        """Extents."""

    def reshape(self, x: A, shape: Sequence[int]) -> A:
        """Row-major."""

    def transpose(self, x: A, perm: Sequence[int]) -> A:
        """Axis ``perm[i]`` becomes axis i."""

    def stretch(self, x: A, shape: Sequence[int]) -> A:
        """Repeat axes of extent 1."""

    def load(self, x: A, index: Index) -> A:
        """Read elements, as NumPy indexes."""

    def integers(self, x: A) -> NDArray[np.int64]:
        """A tensor of whole numbers as such; positions may be elements of it."""

    def buffer(self, shape: Sequence[int]) -> Buffer[A]:
        """A tensor to write to."""


class FloatMeaning:
    """float64 arithmetic of NumPy. Overflow gives infinities and NaN, without a warning."""

    def apply(self, op: str, attr: Attr, args: Sequence[FloatArray]) -> FloatArray:
        del attr  # a cast rounds in a kernel; what that costs is for the float check to judge
        meaning = operator(op).over_floats
        if meaning is None:
            raise UnsupportedError(f"'{op}' is not an elementwise operator over floats")
        with np.errstate(all="ignore"):
            return np.asarray(meaning(*args), dtype=np.float64)

    def power(self, x: FloatArray, exponent: float) -> FloatArray:
        with np.errstate(all="ignore"):
            return np.asarray(np.power(x, exponent))

    def select(self, mask: FloatArray, x: FloatArray) -> FloatArray:
        return np.where(mask != 0, x, np.float64(0.0))

    def shift(self, x: FloatArray, key: str) -> FloatArray:
        del key
        return x

    def const(self, value: float) -> FloatArray:
        return np.asarray(value, dtype=np.float64)

    def size(self, extent: int) -> FloatArray:
        return np.asarray(extent, dtype=np.float64)

    def index(self, values: NDArray[np.int64]) -> FloatArray:
        return values.astype(np.float64)

    def mask(self, truth: NDArray[np.bool_]) -> FloatArray:
        return truth.astype(np.float64)

    def sum(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        with np.errstate(all="ignore"):
            return np.asarray(x.sum(axis=tuple(axes), keepdims=True))

    def max(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        with np.errstate(all="ignore"):
            return np.asarray(x.max(axis=tuple(axes), keepdims=True))

    def contract(self, a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
        """As batched matmuls, so that BLAS does the work and no product is stored."""
        rank = a.ndim
        shared = [x for x in range(rank) if x in axes]
        kept = [x for x in range(rank) if x not in axes]
        batch = [x for x in kept if a.shape[x] > 1 and b.shape[x] > 1]
        rows = [x for x in kept if x not in batch and b.shape[x] == 1]
        columns = [x for x in kept if x not in batch and x not in rows]
        a, b = _over_all(a, b, shared), _over_all(b, a, shared)
        extents = [a.shape[x] for x in batch]
        terms = prod(a.shape[x] for x in shared)
        left = a.transpose(batch + rows + shared + columns).reshape(*extents, -1, terms)
        right = b.transpose(batch + shared + columns + rows).reshape(*extents, terms, -1)
        with np.errstate(all="ignore"):
            product: FloatArray = np.matmul(left, right)
        shape = extents + [a.shape[x] for x in rows] + [b.shape[x] for x in columns]
        order = batch + rows + columns + shared
        split = product.reshape((*shape, *(1 for _ in shared)))
        return np.transpose(split, [order.index(x) for x in range(rank)])

    def rescale(self, old: FloatArray, new: FloatArray, degree: int) -> FloatArray:
        with np.errstate(all="ignore"):
            factor: FloatArray = np.exp(np.where(old == new, 0.0, old - new) * degree)
        return factor

    def shape(self, x: FloatArray) -> tuple[int, ...]:
        return x.shape

    def reshape(self, x: FloatArray, shape: Sequence[int]) -> FloatArray:
        return x.reshape(tuple(shape))

    def transpose(self, x: FloatArray, perm: Sequence[int]) -> FloatArray:
        return np.transpose(x, tuple(perm))

    def stretch(self, x: FloatArray, shape: Sequence[int]) -> FloatArray:
        return np.broadcast_to(x, tuple(shape))

    def load(self, x: FloatArray, index: Index) -> FloatArray:
        return np.asarray(x[index], dtype=np.float64)

    def integers(self, x: FloatArray) -> NDArray[np.int64]:
        return x.astype(np.int64)

    def buffer(self, shape: Sequence[int]) -> Buffer[FloatArray]:
        return FloatBuffer(shape)


def _over_all(a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
    """``a`` repeated along those axes that only ``b`` has."""
    shape = list(a.shape)
    for axis in axes:
        shape[axis] = max(shape[axis], b.shape[axis])
    return a if a.shape == tuple(shape) else np.broadcast_to(a, shape)


class FieldMeaning:
    """One trial over a pair of finite fields; see mirage_py.ugraph.field.

    Raises DivisionByZero where the trial must be drawn again.
    """

    def __init__(self, ops: FieldOps) -> None:
        self.ops = ops

    @property
    def is_pointwise(self) -> bool:
        """Whether an element is what it is whatever others are computed with it."""
        return self.is_repeatable

    @property
    def is_repeatable(self) -> bool:
        """Whether the same operands give the same value each time: each 1 / 0 has its own, and what
        is built on this may count its calls.
        """
        return type(self) is FieldMeaning and not self.ops.fills

    def apply(self, op: str, attr: Attr, args: Sequence[FieldArray]) -> FieldArray:
        if op == "cast":
            return self.ops.cast(args[0], str(attr))
        meaning = operator(op).over_field
        if meaning is None:
            what = f"'{op}' is not an elementwise operator over a field"
            raise UnsupportedError(what, code=Code.NO_FIELD_OPERATOR)
        return meaning(self.ops, *args)

    def power(self, x: FieldArray, exponent: float) -> FieldArray:
        return self.ops.pow_const(x, exponent)

    def select(self, mask: FieldArray, x: FieldArray) -> FieldArray:
        return self.ops.mul(mask, x)

    def shift(self, x: FieldArray, key: str) -> FieldArray:
        """Random elements that do not depend on x: results that survive it hold for any shift."""
        return self.ops.random(x.shape, f"shift {key}")

    def const(self, value: float) -> FieldArray:
        return self.ops.constant(value)

    def size(self, extent: int) -> FieldArray:
        return self.ops.constant(extent)

    def index(self, values: NDArray[np.int64]) -> FieldArray:
        return FieldArray(values % self.ops.field.p, values % self.ops.field.q)

    def mask(self, truth: NDArray[np.bool_]) -> FieldArray:
        bits = truth.astype(np.int64)
        return FieldArray(bits, bits)

    def sum(self, x: FieldArray, axes: Sequence[int]) -> FieldArray:
        return self.ops.sum(x, axes, keepdims=True)

    def max(self, x: FieldArray, axes: Sequence[int]) -> FieldArray:
        return self.ops.max(x, axes, keepdims=True)

    def contract(self, a: FieldArray, b: FieldArray, axes: Sequence[int]) -> FieldArray:
        return self.ops.contract(a, b, axes, keepdims=True)

    def rescale(self, old: FieldArray, new: FieldArray, degree: int) -> FieldArray:
        difference = self.ops.sub(old, new)
        return self.ops.exp(self.ops.mul(difference, self.ops.constant(degree)))

    def shape(self, x: FieldArray) -> tuple[int, ...]:
        return x.shape

    def reshape(self, x: FieldArray, shape: Sequence[int]) -> FieldArray:
        return x.reshape(shape)

    def transpose(self, x: FieldArray, perm: Sequence[int]) -> FieldArray:
        return x.transpose(perm)

    def stretch(self, x: FieldArray, shape: Sequence[int]) -> FieldArray:
        return x.broadcast(shape)

    def load(self, x: FieldArray, index: Index) -> FieldArray:
        return x[index]

    def integers(self, x: FieldArray) -> NDArray[np.int64]:
        return np.where(x.p > self.ops.field.p // 2, x.p - self.ops.field.p, x.p)

    def buffer(self, shape: Sequence[int]) -> Buffer[FieldArray]:
        return FieldBuffer(shape)
