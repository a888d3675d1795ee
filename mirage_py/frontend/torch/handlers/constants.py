"""Tensors made from numbers: full, zeros, ones, arange."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lowering import Lowering, Scalar
from mirage_py.ugraph.named_array import Axis, NamedArray, flat_index


@handles("full.default")
def full(t: Lowering, size: Sequence[int], value: Scalar) -> NamedArray:
    """One number everywhere."""
    return t.full(size, value)


@handles("zeros.default")
def zeros(t: Lowering, size: Sequence[int]) -> NamedArray:
    """0 everywhere."""
    return t.full(size, 0.0)


@handles("ones.default")
def ones(t: Lowering, size: Sequence[int]) -> NamedArray:
    """1 everywhere."""
    return t.full(size, 1.0)


@handles("full_like.default")
def full_like(t: Lowering, x: NamedArray, value: Scalar) -> NamedArray:
    """One number, in the shape of x."""
    return NamedArray(t.array(value).node, x.axes)


@handles("zeros_like.default")
def zeros_like(t: Lowering, x: NamedArray) -> NamedArray:
    """0 in the shape of x."""
    return NamedArray(t.array(0.0).node, x.axes)


@handles("ones_like.default")
def ones_like(t: Lowering, x: NamedArray) -> NamedArray:
    """1 in the shape of x."""
    return NamedArray(t.array(1.0).node, x.axes)


@handles("new_full.default")
def new_full(t: Lowering, x: NamedArray, size: Sequence[int], value: Scalar) -> NamedArray:
    """One number everywhere; x gives the type only."""
    del x
    return t.full(size, value)


@handles("new_zeros.default")
def new_zeros(t: Lowering, x: NamedArray, size: Sequence[int]) -> NamedArray:
    """0 everywhere; x gives the type only."""
    del x
    return t.full(size, 0.0)


@handles("new_ones.default")
def new_ones(t: Lowering, x: NamedArray, size: Sequence[int]) -> NamedArray:
    """1 everywhere; x gives the type only."""
    del x
    return t.full(size, 1.0)


@handles("scalar_tensor.default")
def scalar_tensor(t: Lowering, value: Scalar) -> NamedArray:
    """A number as a tensor without axes."""
    return t.array(value)


@handles("fill.Scalar", "fill.Tensor")
def fill(t: Lowering, x: NamedArray, value: Scalar | NamedArray) -> NamedArray:
    """One number, in the shape of x."""
    return NamedArray(t.array(value).node, x.axes)


@handles("arange.default")
def arange(t: Lowering, end: Scalar) -> NamedArray:
    """0, 1, 2 ... below ``end``."""
    return arange_step(t, 0, end)


@handles("arange.start")
def arange_start(t: Lowering, start: Scalar, end: Scalar) -> NamedArray:
    """start, start + 1 ... below ``end``."""
    return arange_step(t, start, end)


@handles("arange.start_step")
def arange_step(t: Lowering, start: Scalar, end: Scalar, step: Scalar = 1) -> NamedArray:
    """start, start + step ... before ``end``: positions, not data."""
    del end  # torch has counted
    (length,) = t.node_in_hand.meta["val"].shape
    axis: Axis = (t.builder.fresh_dim("i", length),) if length > 1 else ()
    count = NamedArray(t.builder.index(flat_index(t.builder, axis)), (axis,))
    return t.apply("add", t.apply("mul", count, step), start)
