"""Reads and writes at positions that are data: embeddings, gathers, tensors as indices.

Positions are taken modulo the extent, so that no kernel reads outside of a tensor: negative ones
count from the back, as in an index, and what torch would refuse reads some element. Of a tensor
that is written to every element is compared with each position, of which there may be a few; where
one index counts the elements of an axis, each of these has one position to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.handlers.masks import position
from mirage_py.frontend.torch.handlers.reductions import stored_once
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.indices import index_of
from mirage_py.frontend.torch.lower.lowering import Lowering, Operand
from mirage_py.ugraph.building import look_ups, views
from mirage_py.ugraph.building.named_array import Axis
from mirage_py.ugraph.building.views import NamedArray

# A position that is computed is compared with so many elements of an axis at most.
_MOST_SOUGHT = 512
# Every element of a tensor is compared with so many positions that are written at most.
_MOST_WRITTEN = 8


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
    # What is no index expression, as the result of topk, is compared with each place of the axis.
    sought = shape[place] <= _MOST_SOUGHT and not look_ups.is_position(t.builder, index.node)
    if sought:
        stored_once(t, x)
    x = _with_own_dims(t, x, [place])
    inner = x.axes[place]
    # The other axes agree; the axis itself is left out, and its dimensions stay free.
    without = NamedArray(x.node, (*x.axes[:place], (), *x.axes[place + 1 :]))
    one, other = views.broadcast(t.builder, [without, index])
    whole = NamedArray(one.node, (*one.axes[:place], inner, *one.axes[place + 1 :]))
    if not sought:
        return NamedArray(_looked_up(t, whole, {place: other.node}), other.axes)
    # The sum has one term.
    here = t.combine("eq", [position(t, whole, place).node, other.node])
    chosen = t.combine("where", [here, whole.node, t.builder.const(0.0)])
    return NamedArray(t.builder.sum(chosen, inner), other.axes)


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


@handles("index_put.default")
def index_put(
    t: Lowering,
    x: NamedArray,
    indices: Sequence[NamedArray | None],
    values: NamedArray,
    accumulate: bool = False,
) -> NamedArray:
    """x with values at positions, or added there; they stand as ``index`` would give them."""
    at = {n: i for n, i in enumerate(indices) if i is not None}
    given = t.node_in_hand.args[1]
    assert isinstance(given, (list, tuple))
    if any(isinstance(n, torch.fx.Node) and t.result_dtype(n) is torch.bool for n in given):
        return _masked(t, x, at, values, accumulate=accumulate)
    return _put(t, x, at, values, accumulate=accumulate)


@handles("index_copy.default")
def index_copy(
    t: Lowering, x: NamedArray, dim: int, index: NamedArray, source: NamedArray
) -> NamedArray:
    """x with values at positions of an axis, which are counted from the front alone."""
    if not x.axes:
        return views.reshape(t.builder, source, ())
    flat = views.reshape(t.builder, index, (-1,))
    return _put(t, x, {dim % len(x.axes): flat}, source, from_back=False)


def _put(
    t: Lowering,
    x: NamedArray,
    at: Mapping[int, NamedArray],
    values: NamedArray,
    *,
    accumulate: bool = False,
    from_back: bool = True,
) -> NamedArray:
    common = views.broadcast(t.builder, list(at.values()))
    shape = t.shape(common[0])
    places = sorted(at)
    together = places[-1] - places[0] == len(places) - 1
    first = places[0] if together else 0
    rest = [extent for n, extent in enumerate(t.shape(x)) if n not in at]
    whole = views.expand(t.builder, values, (*rest[:first], *shape, *rest[first:]))
    counts = (*rest[:first], -1, *rest[first:])
    # From here the positions have one axis, which comes first among those of the values.
    whole = views.reshape(t.builder, whole, counts)
    order = [first, *(n for n in range(len(counts)) if n != first)]
    whole = views.transpose(t.builder, whole, order)
    flat = {n: views.reshape(t.builder, i, (-1,)) for n, i in zip(at, common, strict=True)}
    counted = next((n for n, i in flat.items() if _counts(t, i, t.shape(x)[n])), None)
    if counted is not None and len(flat) > 1:
        others = {n: _along(i, counted, len(x.axes)) for n, i in flat.items() if n != counted}
        axes = [n for n in range(len(x.axes)) if n not in at or n == counted]
        # The axis of the positions goes where the one stands that they count.
        order = [0 if n == counted else 1 + _rest_place(at, n) for n in axes]
        moved = views.transpose(t.builder, whole, order)
        for n in others:
            moved = views.unsqueeze(t.builder, moved, n)
        return _chosen(t, x, others, moved, accumulate=accumulate, from_back=from_back)
    count = t.shape(whole)[0]
    if count > _MOST_WRITTEN:
        raise t.refuse(
            f"{count} positions that are data are written",
            why=f"every element is compared with each of them, with {_MOST_WRITTEN} at most",
            repair="leave this step to torch, or write one position for each row",
        )
    for number in range(count):
        value = views.select(t.builder, whole, 0, number)
        for n in places:
            value = views.unsqueeze(t.builder, value, n)
        here = {n: views.select(t.builder, i, 0, number) for n, i in flat.items()}
        x = _chosen(t, x, here, value, accumulate=accumulate, from_back=from_back)
    return x


@handles("scatter.src", "scatter.value")
def scatter(t: Lowering, x: NamedArray, dim: int, index: NamedArray, source: Operand) -> NamedArray:
    """x with values along one axis at the positions of an index that has as many axes."""
    if not x.axes:
        return t.array(source)
    place = dim % len(x.axes)
    shape, wanted = list(t.shape(x)), list(t.shape(index))
    count, shape[place] = wanted[place], wanted[place]
    if count > _MOST_WRITTEN or shape != wanted:
        raise t.refuse(
            f"{count} positions of an axis are written",
            why=f"every element is compared with each of them, with {_MOST_WRITTEN} at most, of "
            "all that the other axes have",
            repair="leave this step to torch",
        )
    for n in range(count):
        one = views.slice_axis(t.builder, index, place, n, n + 1)
        value = source
        if isinstance(value, NamedArray):
            for axis, extent in enumerate(wanted):
                first = n if axis == place else 0
                last = n + 1 if axis == place else extent
                value = views.slice_axis(t.builder, value, axis, first, last)
        x = t.apply("where", t.apply("eq", position(t, x, place), one), value, x)
    return x


def _rest_place(at: Mapping[int, object], axis: int) -> int:
    """The place of an axis among those that have no index."""
    return sum(n not in at for n in range(axis))


def _chosen(
    t: Lowering,
    x: NamedArray,
    at: Mapping[int, NamedArray],
    value: NamedArray,
    *,
    accumulate: bool,
    from_back: bool,
) -> NamedArray:
    """x with a value, or with it added, where each axis is at its position."""
    here: NamedArray | None = None
    for axis, wanted in at.items():
        mine = position(t, x, axis)
        is_it = t.apply("eq", mine, wanted)
        if from_back:  # negative ones
            below = t.apply("sub", mine, float(t.shape(x)[axis]))
            is_it = t.apply("or", is_it, t.apply("eq", below, wanted))
        here = is_it if here is None else t.apply("and", here, is_it)
    assert here is not None
    new = t.apply("add", x, value) if accumulate else value
    return t.apply("where", here, new, x)


def _masked(
    t: Lowering,
    x: NamedArray,
    at: Mapping[int, NamedArray],
    values: NamedArray,
    *,
    accumulate: bool,
) -> NamedArray:
    """x with one number where a mask of its first axes holds."""
    (mask, *others), shape = at.values(), t.shape(x)
    if others or 0 not in at or any(extent != 1 for extent in t.shape(values)):
        raise t.refuse(
            "values at the positions of a mask are not supported",
            why="which value goes where depends on the mask",
            repair="use torch.where",
        )
    for _ in range(len(shape) - len(mask.axes)):
        mask = views.unsqueeze(t.builder, mask, len(mask.axes))
    value = views.reshape(t.builder, values, ())
    return t.apply("where", mask, t.apply("add", x, value) if accumulate else value, x)


def _counts(t: Lowering, index: NamedArray, extent: int) -> bool:
    """Whether an index of one axis is 0, 1, 2 ... up to an extent."""
    expression = index_of(t.builder, index.node)
    return (
        expression is not None
        and expression.is_dim
        and index.axes == ((expression.name,),)
        and t.builder.sizes[expression.name] == extent
    )


def _along(index: NamedArray, axis: int, rank: int) -> NamedArray:
    """An index of one axis as one along an axis of a tensor."""
    axes: list[tuple[str, ...]] = [()] * rank
    axes[axis] = index.axes[0]
    return NamedArray(index.node, tuple(axes))
