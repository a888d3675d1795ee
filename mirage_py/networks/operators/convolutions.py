"""Convolutions along 1, 2 or 3 axes, and transposed ones: stride, padding, dilation, groups.

Tensors are [samples, channels, ...]. A weight is [results, channels of a group, ...]; of a
transposed convolution it is [channels, results of a group, ...]. There is no bias: it is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirage_py.networks.operators.operator import (
    Attribute,
    Attributes,
    Operator,
    refused,
    register,
)
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.networks.operators.window_views import windowed
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.building.windows import Window, windows
from mirage_py.ugraph.field import FieldArray, FieldOps


def window_rows(
    size: Sequence[int], kernel: Sequence[int], a: Attributes, *, transposed: bool
) -> list[Window]:
    """The windows along each axis; a count below 1 means that none fits."""
    found: list[Window] = []
    for n, (extent, k) in enumerate(zip(size, kernel, strict=True)):
        stride, before, dilation = a["stride"][n], a["padding"][n], a["dilation"][n]
        reach = dilation * (k - 1)
        if transposed:
            count = (extent - 1) * stride - 2 * before + reach + a["output_padding"][n] + 1
        else:
            count = (extent + 2 * before - reach - 1) // stride + 1
        found.append(Window(k, count, stride, before, dilation, transposed))
    return found


def _shape(
    name: str, types: Sequence[TensorType], a: Attributes, *, transposed: bool
) -> tuple[TensorType]:
    x, w = types
    rank, groups = len(a["stride"]), a["groups"]
    if x.rank != rank + 2 or w.rank != rank + 2:
        raise refused(name, types, f"both have {rank + 2} axes")
    if x.dtype != w.dtype:
        raise refused(name, types, "element types differ; cast one of them")
    _check_numbers(name, types, a)
    if groups < 1 or x.shape[1] % groups or w.shape[0] % groups:
        raise refused(name, types, f"{groups} groups do not divide the channels")
    channels = w.shape[0] if transposed else w.shape[1] * groups
    if channels != x.shape[1]:
        raise refused(name, types, f"the weight is for {channels} channels, not for {x.shape[1]}")
    rows = window_rows(x.shape[2:], w.shape[2:], a, transposed=transposed)
    if min(row.count for row in rows) < 1:
        raise refused(name, types, "the kernel is larger than the padded input")
    results = w.shape[1] * groups if transposed else w.shape[0]
    return (x.of_shape((x.shape[0], results, *(row.count for row in rows))),)


def _check_numbers(name: str, types: Sequence[TensorType], a: Attributes) -> None:
    """What torch refuses of the attributes alone."""
    if min((*a["stride"], *a["dilation"])) < 1 or min(a["padding"]) < 0:
        raise refused(name, types, "stride and dilation are positive, padding not negative")
    if "output_padding" in a:
        more = zip(a["output_padding"], a["stride"], a["dilation"], strict=True)
        if any(not 0 <= n < max(s, d) for n, s, d in more):
            raise refused(name, types, "output_padding is smaller than stride or dilation")


def _convolution(rank: int, *, transposed: bool) -> Operator:
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"

    def over_torch(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
        import torch

        return (getattr(torch.nn.functional, name)(*xs, **a),)

    def over_field(ops: FieldOps, xs: Sequence[FieldArray], a: Attributes) -> tuple[FieldArray]:
        x, w = xs
        rows = window_rows(x.shape[2:], w.shape[2:], a, transposed=transposed)
        read = windowed(x, {2 + n: row for n, row in enumerate(rows)}, ops.constant(0))
        groups, kernel, counts = a["groups"], w.shape[2:], [row.count for row in rows]
        channels = x.shape[1] // groups
        ones = (1,) * rank
        tiles = read.reshape((x.shape[0], groups, 1, channels, *counts, *kernel))
        if transposed:
            taps = w.reshape((groups, channels, w.shape[1], *kernel))
            taps = taps.transpose((0, 2, 1, *range(3, 3 + rank)))
        else:
            taps = w.reshape((groups, -1, channels, *kernel))
        taps = taps.reshape((1, *taps.shape[:3], *ones, *kernel))
        total = ops.contract(tiles, taps, (3, *range(4 + rank, 4 + 2 * rank)))
        return (total.reshape((x.shape[0], -1, *counts)),)

    def over_program(
        builder: ProgramBuilder, xs: Sequence[NamedArray], a: Attributes
    ) -> tuple[NamedArray]:
        x, w = xs
        shape, outer = views.shape_of(builder, x), views.shape_of(builder, w)
        rows = window_rows(shape[2:], outer[2:], a, transposed=transposed)
        read, _ = windows(builder, x, {2 + n: row for n, row in enumerate(rows)}, 0.0)
        return (contracted(builder, read, w, a["groups"], transposed=transposed),)

    attributes = [
        Attribute("stride", tuple, (1,) * rank, rank),
        Attribute("padding", tuple, (0,) * rank, rank),
        Attribute("dilation", tuple, (1,) * rank, rank),
        Attribute("groups", int, 1),
    ]
    if transposed:
        attributes.append(Attribute("output_padding", tuple, (0,) * rank, rank))
    what = "transposed convolution" if transposed else "convolution"
    return Operator(
        name,
        2,
        lambda types, a: _shape(name, types, a, transposed=transposed),
        over_torch,
        over_field,
        over_program,
        tuple(attributes),
        linear=((0,), (1,)),
        about=f"The {what} along the last {rank} axes.",
    )


def contracted(
    builder: ProgramBuilder, read: NamedArray, w: NamedArray, groups: int, *, transposed: bool
) -> NamedArray:
    """Windows [n, c, places, positions] times a weight, summed over channels and positions."""
    outer = views.shape_of(builder, w)
    rank = len(outer) - 2
    extents = views.shape_of(builder, read)
    channels = extents[1] // groups
    apart = views.reshape(builder, read, (extents[0], groups, channels, *extents[2:]))
    # [groups, channels, results] of a transposed convolution, [groups, results, channels] else.
    inner = (channels, outer[1]) if transposed else (outer[0] // groups, channels)
    taps = views.reshape(builder, w, (groups, *inner, *outer[2:]))
    if transposed:
        taps = views.transpose(builder, taps, (0, 2, 1, *range(3, 3 + rank)))
    batch, group, channel, *rest = apart.axes
    left = NamedArray(apart.node, (batch, group, (), channel, *rest))
    group, result, channel, *inside = taps.axes
    right = NamedArray(taps.node, ((), group, result, channel, *((),) * rank, *inside))
    one, other = views.broadcast(builder, [left, right])
    summed = [d for axis in (one.axes[3], *one.axes[4 + rank :]) for d in axis]
    total = builder.sum(builder.apply("mul", one.node, other.node), summed)
    batch, group, result, _, *places = one.axes[: 4 + rank]
    return NamedArray(total, (batch, (*group, *result), *places))


CONVOLUTIONS = tuple(register(_convolution(rank, transposed=False)) for rank in (1, 2, 3))
TRANSPOSED = tuple(register(_convolution(rank, transposed=True)) for rank in (1, 2, 3))
