"""Pooling along the last axes: largest element or mean of windows, and of adaptive ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from mirage_py.networks.operators.operator import (
    Attribute,
    Attributes,
    Operator,
    refused,
    register,
)
from mirage_py.networks.operators.reductions import field_mean
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.networks.operators.window_views import windowed
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.building.windows import Window, windows
from mirage_py.ugraph.field import FieldArray, FieldOps
from mirage_py.ugraph.ir.dtypes import F32

Rows = dict[int, Window]


def _rows(shape: Sequence[int], rank: int, a: Attributes) -> Rows:
    """The windows, as many as torch counts: with ``ceil`` one more may reach behind the padding,
    unless it would start there.
    """
    first = len(shape) - rank
    found: Rows = {}
    for n in range(rank):
        size, k, s, p = shape[first + n], a["kernel"][n], a["stride"][n], a["padding"][n]
        d = a["dilation"][n] if "dilation" in a else 1
        room = size + 2 * p - d * (k - 1) - 1
        count = room // s + 1
        if a["ceil"] and room % s and count * s < size + p:
            count += 1
        found[first + n] = Window(k, count, s, p, d)
    return found


def _adaptive_rows(shape: Sequence[int], rank: int, a: Attributes) -> Rows:
    """Equal windows side by side."""
    first = len(shape) - rank
    sizes = zip(shape[first:], a["counts"], strict=True)
    return {
        first + n: Window(size // count, count, size // count)
        for n, (size, count) in enumerate(sizes)
    }


def _shape(
    name: str, types: Sequence[TensorType], rank: int, a: Attributes, *, adaptive: bool
) -> tuple[TensorType]:
    shape = types[0].shape
    if len(shape) not in (rank + 1, rank + 2):
        raise refused(name, types, f"it has {rank} axes behind channels, with samples or without")
    if adaptive:
        sizes = zip(shape[-rank:], a["counts"], strict=True)
        if any(count < 1 or size % count for size, count in sizes):
            why = f"{list(a['counts'])} windows do not divide it, so they have different sizes"
            raise refused(name, types, why)
        return (types[0].of_shape((*shape[:-rank], *a["counts"])),)
    if min((*a["kernel"], *a["stride"], *a.get("dilation", (1,)))) < 1:
        raise refused(name, types, "kernel, stride and dilation are positive")
    if any(not 0 <= 2 * p <= k for p, k in zip(a["padding"], a["kernel"], strict=True)):
        raise refused(name, types, "padding is at most half of the kernel")
    counts = [window.count for window in _rows(shape, rank, a).values()]
    if min(counts) < 1:
        raise refused(name, types, "the kernel is larger than the padded input")
    return (types[0].of_shape((*shape[:-rank], *counts)),)


def _counts(shape: Sequence[int], rank: int, a: Attributes) -> tuple[list[list[int]], bool]:
    """How many elements count along each axis in each window, and whether it is one number."""
    rows = _rows(shape, rank, a)
    found: list[list[int]] = []
    for axis, window in rows.items():
        # Padding counts, or it does not; what ceil has behind it never does.
        low, high = (-window.before, shape[axis] + window.before) if a["count_padding"] else (
            0, shape[axis],
        )  # fmt: skip
        starts = [n * window.stride - window.before for n in range(window.count)]
        found.append([min(s + window.extent, high) - max(s, low) for s in starts])
    return found, all(len(set(numbers)) == 1 for numbers in found)


def _field_average(ops: FieldOps, x: FieldArray, rank: int, a: Attributes) -> FieldArray:
    total = _summed(ops, windowed(x, _rows(x.shape, rank, a), ops.constant(0)), x.ndim)
    numbers, _ = _counts(x.shape, rank, a)
    table = np.ones((), dtype=np.int64)
    for along in numbers:
        table = table[..., None] * np.asarray(along, dtype=np.int64)
    known = np.unique(table)
    shares = [ops.div(ops.constant(1), ops.constant(int(n))) for n in known]
    place = np.searchsorted(known, table)
    p = np.stack([share.p for share in shares])[place]
    q = np.stack([share.q for share in shares if share.q is not None])[place]
    return ops.mul(total, FieldArray(p, q))


def _summed(ops: FieldOps, read: FieldArray, rank: int) -> FieldArray:
    return ops.sum(read, tuple(range(rank, read.ndim)))


def _program_average(
    builder: ProgramBuilder, x: NamedArray, rank: int, a: Attributes
) -> NamedArray:
    shape = views.shape_of(builder, x)
    rows = _rows(shape, rank, a)
    read, inside = windows(builder, x, rows, 0.0)
    total = _over_windows(read, len(shape), builder.sum)
    numbers, is_one = _counts(shape, rank, a)
    if is_one:
        count = builder.const(float(prod(along[0] for along in numbers)))
        return NamedArray(builder.apply("div", total.node, count), total.axes)
    if a["count_padding"]:
        # Ones on the padded axes, under the same windows without padding.
        ones = NamedArray(builder.const(1.0), tuple(
            (builder.fresh_dim("w", shape[n] + 2 * rows[n].before),) if n in rows else ()
            for n in range(len(shape))
        ))  # fmt: skip
        bare = {n: Window(w.extent, w.count, w.stride) for n, w in rows.items()}
        wide, inside = windows(builder, ones, bare, 0.0)
        counted = _over_windows(NamedArray(inside, wide.axes), len(shape), builder.sum)
        pair = views.broadcast(builder, [total, counted])
    else:
        pair = [
            total,
            _over_windows(NamedArray(inside, read.axes), len(shape), builder.sum),
        ]
    return NamedArray(builder.apply("div", pair[0].node, pair[1].node), pair[0].axes)


def _over_windows(read: NamedArray, rank: int, reduce: Callable[[int, Any], int]) -> NamedArray:
    """The elements of each window, on axes from ``rank`` on, in one."""
    dims = [d for axis in read.axes[rank:] for d in axis]
    return NamedArray(reduce(read.node, dims), read.axes[:rank])


def _tuple_of(name: str, rank: int, default: int | None = None) -> Attribute:
    return Attribute(name, tuple, None if default is None else (default,) * rank, rank)


def _max_pool(rank: int) -> Operator:
    name = f"max_pool{rank}d"

    def over_torch(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
        import torch

        numbers = a["kernel"], a["stride"], a["padding"], a["dilation"], bool(a["ceil"])
        return (getattr(torch.nn.functional, name)(xs[0], *numbers),)

    def over_field(ops: FieldOps, xs: Sequence[FieldArray], a: Attributes) -> tuple[FieldArray]:
        read = windowed(xs[0], _rows(xs[0].shape, rank, a), ops.constant(F32.lowest))
        return (ops.max(read, tuple(range(xs[0].ndim, read.ndim))),)

    def over_program(
        builder: ProgramBuilder, xs: Sequence[NamedArray], a: Attributes
    ) -> tuple[NamedArray]:
        shape = views.shape_of(builder, xs[0])
        read, _ = windows(builder, xs[0], _rows(shape, rank, a), F32.lowest)
        return (_over_windows(read, len(shape), builder.max),)

    return Operator(
        name,
        1,
        lambda types, a: _shape(name, types, rank, a, adaptive=False),
        over_torch,
        over_field,
        over_program,
        (
            _tuple_of("kernel", rank),
            _tuple_of("stride", rank),
            _tuple_of("padding", rank, 0),
            _tuple_of("dilation", rank, 1),
            Attribute("ceil", int, 0),
        ),
        about="The largest element of each window.",
    )


def _avg_pool(rank: int) -> Operator:
    name = f"avg_pool{rank}d"

    def over_torch(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
        import torch

        numbers = a["kernel"], a["stride"], a["padding"], bool(a["ceil"]), bool(a["count_padding"])
        return (getattr(torch.nn.functional, name)(xs[0], *numbers),)

    return Operator(
        name,
        1,
        lambda types, a: _shape(name, types, rank, a, adaptive=False),
        over_torch,
        lambda ops, xs, a: (_field_average(ops, xs[0], rank, a),),
        lambda b, xs, a: (_program_average(b, xs[0], rank, a),),
        (
            _tuple_of("kernel", rank),
            _tuple_of("stride", rank),
            _tuple_of("padding", rank, 0),
            Attribute("ceil", int, 0),
            Attribute("count_padding", int, 1),
        ),
        linear=((0,),),
        about="The mean of each window; padding counts as zeros, or not at all.",
    )


def _adaptive(rank: int, what: str) -> Operator:
    name = f"adaptive_{what}_pool{rank}d"

    def over_torch(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
        import torch

        return (getattr(torch.nn.functional, name)(xs[0], a["counts"]),)

    def over_field(ops: FieldOps, xs: Sequence[FieldArray], a: Attributes) -> tuple[FieldArray]:
        read = windowed(xs[0], _adaptive_rows(xs[0].shape, rank, a), ops.constant(0))
        axes = tuple(range(xs[0].ndim, read.ndim))
        return (ops.max(read, axes) if what == "max" else field_mean(ops, read, axes),)

    def over_program(
        builder: ProgramBuilder, xs: Sequence[NamedArray], a: Attributes
    ) -> tuple[NamedArray]:
        shape = views.shape_of(builder, xs[0])
        read, _ = windows(builder, xs[0], _adaptive_rows(shape, rank, a), 0.0)
        reduce = builder.max if what == "max" else builder.mean
        return (_over_windows(read, len(shape), reduce),)

    return Operator(
        name,
        1,
        lambda types, a: _shape(name, types, rank, a, adaptive=True),
        over_torch,
        over_field,
        over_program,
        (_tuple_of("counts", rank),),
        linear=((0,),) if what == "avg" else (),
        about="Equal windows that make up the axes, so many along each.",
    )


POOLS = tuple(
    register(row)
    for rank in (1, 2, 3)
    for row in (
        _max_pool(rank), _avg_pool(rank), _adaptive(rank, "max"), _adaptive(rank, "avg"),
    )
)  # fmt: skip
