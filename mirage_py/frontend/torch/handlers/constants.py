"""Tensors made from numbers: full, zeros, ones, arange, and memory that is filled later."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering, Operand, Scalar
from mirage_py.ugraph.building.named_array import Axis, NamedArray, flat_index

Kind = torch.dtype | None


@handles("full.default")
def full(t: Lowering, size: Sequence[int], value: Scalar, dtype: Kind = None) -> NamedArray:
    """One number everywhere."""
    return t.full(size, _stored(value, dtype))


@handles("zeros.default")
def zeros(t: Lowering, size: Sequence[int], dtype: Kind = None) -> NamedArray:
    """0 everywhere."""
    return full(t, size, 0, dtype)


@handles("ones.default")
def ones(t: Lowering, size: Sequence[int], dtype: Kind = None) -> NamedArray:
    """1 everywhere."""
    return full(t, size, 1, dtype)


@handles("full_like.default", "fill.Scalar", "fill.Tensor")
def full_like(t: Lowering, x: NamedArray, value: Operand, dtype: Kind = None) -> NamedArray:
    """One number, in the shape of x."""
    number = value if isinstance(value, NamedArray) else _stored(value, dtype)
    return NamedArray(t.array(number).node, x.axes)


@handles("zeros_like.default")
def zeros_like(t: Lowering, x: NamedArray, dtype: Kind = None) -> NamedArray:
    """0 in the shape of x."""
    return full_like(t, x, 0, dtype)


@handles("ones_like.default")
def ones_like(t: Lowering, x: NamedArray, dtype: Kind = None) -> NamedArray:
    """1 in the shape of x."""
    return full_like(t, x, 1, dtype)


@handles("new_full.default")
def new_full(
    t: Lowering, x: NamedArray, size: Sequence[int], value: Scalar, dtype: Kind = None
) -> NamedArray:
    """One number everywhere; x gives the type only."""
    del x
    return full(t, size, value, dtype)


@handles("new_zeros.default")
def new_zeros(t: Lowering, x: NamedArray, size: Sequence[int], dtype: Kind = None) -> NamedArray:
    """0 everywhere; x gives the type only."""
    return new_full(t, x, size, 0, dtype)


@handles("new_ones.default")
def new_ones(t: Lowering, x: NamedArray, size: Sequence[int], dtype: Kind = None) -> NamedArray:
    """1 everywhere; x gives the type only."""
    return new_full(t, x, size, 1, dtype)


@handles("empty.memory_format", "empty_strided.default", "empty_permuted.default")
def empty(
    t: Lowering, size: Sequence[int], *layout: Sequence[int], dtype: Kind = None
) -> NamedArray:
    """Memory that the function fills: what it never writes may hold anything, as 0."""
    del layout
    return full(t, size, 0, dtype)


@handles("empty_like.default")
def empty_like(t: Lowering, x: NamedArray, dtype: Kind = None) -> NamedArray:
    """The same in the shape of x."""
    return full_like(t, x, 0, dtype)


@handles("new_empty.default", "new_empty_strided.default")
def new_empty(
    t: Lowering, x: NamedArray, size: Sequence[int], *layout: Sequence[int], dtype: Kind = None
) -> NamedArray:
    """The same; x gives the type only."""
    del layout
    return new_full(t, x, size, 0, dtype)


@handles("scalar_tensor.default")
def scalar_tensor(t: Lowering, value: Scalar, dtype: Kind = None) -> NamedArray:
    """A number as a tensor without axes."""
    return t.array(_stored(value, dtype))


@handles("arange.default")
def arange(t: Lowering, end: Scalar, dtype: Kind = None) -> NamedArray:
    """0, 1, 2 ... below ``end``."""
    return arange_step(t, 0, end, 1, dtype)


@handles("arange.start")
def arange_start(t: Lowering, start: Scalar, end: Scalar, dtype: Kind = None) -> NamedArray:
    """start, start + 1 ... below ``end``."""
    return arange_step(t, start, end, 1, dtype)


@handles("arange.start_step")
def arange_step(
    t: Lowering, start: Scalar, end: Scalar, step: Scalar = 1, dtype: Kind = None
) -> NamedArray:
    """start, start + step ... before ``end``: positions, not data."""
    del end, dtype  # torch has counted; positions are exact in any type
    (length,) = t.node_in_hand.meta["val"].shape
    axis: Axis = (t.builder.fresh_dim("i", length),) if length > 1 else ()
    count = NamedArray(t.builder.index(flat_index(t.builder, axis)), (axis,))
    return t.apply("add", t.apply("mul", count, step), start)


def _stored(value: Scalar, dtype: Kind) -> Scalar:
    """The number as a tensor of the type holds it."""
    if dtype is None or not dtype.is_floating_point:
        return value
    return torch.tensor(value, dtype=dtype).item()
