"""Reads at positions that are data: embeddings, gathers, tensors as indices.

Positions are taken modulo the extent, so that no kernel reads outside of a tensor: negative ones
count from the back, as in an index, and what torch would refuse reads some element.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import look_ups, views
from mirage_py.ugraph.building.named_array import Axis
from mirage_py.ugraph.building.views import NamedArray


@handles("embedding.default")
def embedding(
    t: Lowering,
    weight: NamedArray,
    indices: NamedArray,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> NamedArray:
    """Rows of a table."""
    del padding_idx, scale_grad_by_freq, sparse  # they are about gradients
    return read_at(t, weight, {0: indices}, 0)


@handles("index_select.default")
def index_select(t: Lowering, x: NamedArray, dim: int, index: NamedArray) -> NamedArray:
    """Positions of an axis in another order, some maybe several times."""
    return read_at(t, x, {dim % len(x.axes): index}, dim % len(x.axes))


@handles("index.Tensor", "_unsafe_index.Tensor")
def index(t: Lowering, x: NamedArray, indices: Sequence[NamedArray | None]) -> NamedArray:
    """Tensors as indices, which broadcast; their axes stand where the first is, in front of all
    where the indices are apart.
    """
    given = t.node_in_hand.args[1]
    assert isinstance(given, (list, tuple))
    for node in given:
        if isinstance(node, torch.fx.Node) and t.result_dtype(node) in (torch.bool, torch.uint8):
            raise t.refuse(
                "an index of truth values is not supported",
                why="the shape of its result depends on values",
                repair="keep the shape, and use a mask with torch.where instead",
            )
    at = {n: i for n, i in enumerate(indices) if i is not None}
    places = sorted(at)
    together = places[-1] - places[0] == len(places) - 1
    return read_at(t, x, at, places[0] if together else 0)


@handles("gather.default")
def gather(
    t: Lowering, x: NamedArray, dim: int, index: NamedArray, sparse_grad: bool = False
) -> NamedArray:
    """Along one axis the positions of an index that has as many axes."""
    del sparse_grad
    if not x.axes:
        return x
    place = dim % len(x.axes)
    shape, wanted = t.shape(x), t.shape(index)
    for axis in range(len(shape)):
        if axis != place and wanted[axis] < shape[axis]:
            x = views.slice_axis(t.builder, x, axis, 0, wanted[axis])
    x = _with_own_dims(t, x, [place])
    inner = x.axes[place]
    # The other axes agree; the axis itself is left out, and its dimensions stay free.
    without = NamedArray(x.node, (*x.axes[:place], (), *x.axes[place + 1 :]))
    one, other = views.broadcast(t.builder, [without, index])
    whole = NamedArray(one.node, (*one.axes[:place], inner, *one.axes[place + 1 :]))
    return NamedArray(_looked_up(t, whole, {place: other.node}), other.axes)


@handles("take_along_dim.default")
def take_along_dim(
    t: Lowering, x: NamedArray, indices: NamedArray, dim: int | None = None
) -> NamedArray:
    """The same, of two tensors that broadcast."""
    if dim is None:
        flat = views.reshape(t.builder, x, (-1,))
        return gather(t, flat, 0, views.reshape(t.builder, indices, (-1,)))
    place = dim % len(x.axes)
    shape, wanted = list(t.shape(x)), list(t.shape(indices))
    for axis in range(len(shape)):
        if axis != place:
            shape[axis] = wanted[axis] = max(shape[axis], wanted[axis])
    x = views.expand(t.builder, x, shape)
    return gather(t, x, place, views.expand(t.builder, indices, wanted))


def read_at(t: Lowering, x: NamedArray, at: dict[int, NamedArray], place: int) -> NamedArray:
    """x with axes read at arrays of positions, whose common axes stand at ``place``."""
    common = views.broadcast(t.builder, list(at.values()))
    rest = {d for n, axis in enumerate(x.axes) if n not in at for d in axis}
    axes: list[Axis] = []
    for axis in common[0].axes:
        fresh = [t.builder.fresh_dim(d, t.builder.sizes[d]) if d in rest else d for d in axis]
        axes.append(tuple(fresh))
    placed = [views.retarget(t.builder, i, axes) for i in common]
    found = _looked_up(t, x, {n: i.node for n, i in zip(at, placed, strict=True)})
    left = [axis for n, axis in enumerate(x.axes) if n not in at]
    return NamedArray(found, (*left[:place], *axes, *left[place:]))


def _looked_up(t: Lowering, x: NamedArray, at: dict[int, int]) -> int:
    try:
        return look_ups.look_up(t.builder, x, at)
    except UnsupportedError as error:
        raise t.refuse(error.what, why=error.why, repair=error.repair) from error


def _with_own_dims(t: Lowering, x: NamedArray, places: Sequence[int]) -> NamedArray:
    """x with new dimensions along some axes."""
    axes = list(x.axes)
    for n in places:
        axes[n] = tuple(t.builder.fresh_dim(d, t.builder.sizes[d]) for d in axes[n])
    return views.retarget(t.builder, x, axes)
