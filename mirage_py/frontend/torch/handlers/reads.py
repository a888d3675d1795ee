"""Reads and writes at positions that are data: embeddings, gathers, tensors as indices.

Positions are taken modulo the extent, so that no kernel reads outside of a tensor: negative ones
count from the back, as in an index, and what torch would refuse reads some element. Of a tensor
that is written to every element is compared with each position; where one index counts the
elements of an axis, each of these has one position to compare with. Where many are written or
added each element reduces what is meant for it; of several values for one place the last is there,
as on a CPU: torch promises none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.handlers.masks import position
from mirage_py.frontend.torch.handlers.reductions import (
    LOWEST,
    amax,
    compared,
    stored_once,
    sum_,
)
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.indices import index_of
from mirage_py.frontend.torch.lower.lowering import Lowering, Operand
from mirage_py.ugraph.building import look_ups, views
from mirage_py.ugraph.building.named_array import Axis
from mirage_py.ugraph.building.views import NamedArray

# A position that is computed is compared with so many elements of an axis at most.
_MOST_SOUGHT = 512
# So many positions that are written have a comparison and a choice each; more are reduced.
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


@handles("masked_select.default")
def masked_select(t: Lowering, x: NamedArray, mask: NamedArray) -> NamedArray:
    """Elements where a mask holds: taken care of where shapes are followed (selections.py)."""
    del x, mask
    raise t.refuse("the elements that a mask selects are not supported here")


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
    numbers = {n: i.node for n, i in zip(at, placed, strict=True)}
    found = _sought(t, x, numbers)
    left = [axis for n, axis in enumerate(x.axes) if n not in at]
    return NamedArray(found, (*left[:place], *axes, *left[place:]))


def _sought(t: Lowering, x: NamedArray, at: dict[int, int]) -> int:
    """x at positions of some axes. What no index expression gives, as the result of argmax, is
    compared with each place of its axis: a sum that has one term.
    """
    shape = t.shape(x)
    sought = [n for n, i in at.items() if not look_ups.is_position(t.builder, i)]
    if not sought or any(shape[n] > _MOST_SOUGHT for n in sought):
        return _looked_up(t, x, at)
    stored_once(t, x)
    x = _with_own_dims(t, x, sought)
    known = {n: i for n, i in at.items() if n not in sought}
    found = _looked_up(t, x, known) if known else x.node
    for n in sought:
        mine = position(t, NamedArray(x.node, (x.axes[n],)), 0).node
        bounds = t.whole_bounds(NamedArray(at[n], ()))
        here = t.combine("eq", [mine, at[n]])
        if bounds is None or bounds[0] < 0:  # negative ones count from the back
            back = t.combine("add", [at[n], t.builder.const(float(shape[n]))])
            here = t.combine("or", [here, t.combine("eq", [mine, back])])
        chosen = t.combine("where", [here, found, t.builder.const(0.0)])
        found = t.builder.sum(chosen, x.axes[n])
    return found


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
        return _many_put(t, x, flat, whole, accumulate=accumulate, from_back=from_back)
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
        return _many_scattered(t, x, dim, index, source)
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
        is_it = _is_at(t, x, axis, wanted, from_back=from_back)
        here = is_it if here is None else t.apply("and", here, is_it)
    assert here is not None
    new = t.apply("add", x, value) if accumulate else value
    return t.apply("where", here, new, x)


def _is_at(
    t: Lowering, x: NamedArray, axis: int, wanted: NamedArray, *, from_back: bool
) -> NamedArray:
    """Whether an axis is at a position; negative ones count ``from_back``."""
    mine = position(t, x, axis)
    is_it = t.apply("eq", mine, wanted)
    if not from_back:
        return is_it
    below = t.apply("sub", mine, float(t.shape(x)[axis]))
    return t.apply("or", is_it, t.apply("eq", below, wanted))


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


# -- many positions ------------------------------------------------------------------------------


@handles("scatter_add.default")
def scatter_add(
    t: Lowering, x: NamedArray, dim: int, index: NamedArray, source: NamedArray
) -> NamedArray:
    """x with values added along one axis at the positions of an index that has as many axes."""
    if not x.axes:
        return t.apply("add", x, views.reshape(t.builder, source, ()))
    here, value = _meetings(t, x, dim, index, source)
    return t.apply("add", x, _added(t, here, value, dim % len(x.axes) + 1))


@handles("index_add.default")
def index_add(
    t: Lowering,
    x: NamedArray,
    dim: int,
    index: NamedArray,
    source: NamedArray,
    *,
    alpha: float = 1,
) -> NamedArray:
    """x with values added at positions of an axis."""
    source = source if alpha == 1 else t.apply("mul", source, alpha)
    if not x.axes:
        return t.apply("add", x, views.reshape(t.builder, source, ()))
    place = dim % len(x.axes)
    flat = views.reshape(t.builder, index, [-1 if n == place else 1 for n in range(len(x.axes))])
    return scatter_add(t, x, dim, views.expand(t.builder, flat, t.shape(source)), source)


@handles("scatter_reduce.two")
def scatter_reduce(
    t: Lowering,
    x: NamedArray,
    dim: int,
    index: NamedArray,
    source: NamedArray,
    reduce: str,
    *,
    include_self: bool = True,
) -> NamedArray:
    """The sum, the mean or an extreme of the values that are meant for each element, with what it
    was itself or without; where there are none it stays as it was.
    """
    kinds = ("sum", "mean", "amax", "amin")
    if reduce not in kinds or (reduce == "mean" and not t.result_dtype().is_floating_point):
        raise t.refuse(
            f"scatter_reduce with '{reduce}' of {t.result_dtype()} is not supported",
            why="products along an axis, and quotients that are rounded, are no reductions",
            repair=f"use {', '.join(kinds)} of floats, or leave this step to torch",
        )
    if not x.axes:
        x, index, source = (views.reshape(t.builder, a, (1,)) for a in (x, index, source))
        return views.reshape(
            t.builder, _reduced(t, x, 0, index, source, reduce, include_self=include_self), ()
        )
    return _reduced(t, x, dim, index, source, reduce, include_self=include_self)


def _reduced(
    t: Lowering,
    x: NamedArray,
    dim: int,
    index: NamedArray,
    source: NamedArray,
    reduce: str,
    *,
    include_self: bool,
) -> NamedArray:
    here, value = _meetings(t, x, dim, index, source)
    along = dim % len(x.axes) + 1
    some = _any_of(t, here, along)
    if reduce in ("amax", "amin"):
        key = value if reduce == "amax" else t.apply("neg", value)
        best = amax(t, t.apply("where", here, compared(t, key), LOWEST), along)
        best = best if reduce == "amax" else t.apply("neg", best)
        if include_self:
            best = t.apply("maximum" if reduce == "amax" else "minimum", x, best)
        return t.apply("where", some, best, x)
    total = _added(t, here, value, along)
    if include_self:
        total = t.apply("add", x, total)
    if reduce == "mean":
        count = sum_(t, here, along)
        count = t.apply("add", count, 1.0) if include_self else t.apply("maximum", count, 1.0)
        total = t.apply("div", total, count)
    return total if include_self else t.apply("where", some, total, x)


def _many_scattered(
    t: Lowering, x: NamedArray, dim: int, index: NamedArray, source: Operand
) -> NamedArray:
    """x with values along one axis at the positions of an index that has as many axes."""
    here, value = _meetings(t, x, dim, index, t.array(source))
    return _last_written(t, x, here, value, dim % len(x.axes) + 1)


def _many_put(
    t: Lowering,
    x: NamedArray,
    at: dict[int, NamedArray],
    values: NamedArray,
    *,
    accumulate: bool,
    from_back: bool,
) -> NamedArray:
    """x with values, or with these added, at positions of some axes. Each index has one axis, the
    same for all, which is the first of the values; their others are those of x without an index.
    """
    _check_count(t, t.shape(values)[0])
    for index in at.values():
        stored_once(t, index)
    stored_once(t, values)
    values = views.renewed(t.builder, values, 0)
    rank = len(x.axes)
    value = views.transpose(t.builder, values, [*range(1, len(values.axes)), 0])
    here: NamedArray | None = None
    whole = views.unsqueeze(t.builder, x, rank)
    for axis in sorted(at):
        value = views.unsqueeze(t.builder, value, axis)
        wanted = views.reshape(t.builder, at[axis], (*[1] * rank, -1))
        wanted = views.renewed(t.builder, wanted, rank)
        is_it = _is_at(t, whole, axis, wanted, from_back=from_back)
        here = is_it if here is None else t.apply("and", here, is_it)
    assert here is not None
    if accumulate:
        return t.apply("add", x, _added(t, here, value, rank))
    return _last_written(t, x, here, value, rank)


def _meetings(
    t: Lowering, x: NamedArray, dim: int, index: NamedArray, source: NamedArray
) -> tuple[NamedArray, NamedArray]:
    """Which position of an index is which element of x, with one more axis after ``dim`` for the
    positions; and the values, on the axes of the index, with an axis for the elements.
    """
    place = dim % len(x.axes)
    shape, wanted = list(t.shape(x)), list(t.shape(index))
    _check_count(t, wanted[place])
    source = _first_elements(t, source, wanted) if source.axes else source
    stored_once(t, index)
    stored_once(t, source)
    for n, (extent, count) in enumerate(zip(shape, wanted, strict=True)):
        if n != place and count < extent:
            # Nothing is meant for the others: no element is at -1.
            index = _widened(t, index, n, extent, -1.0)
            source = _widened(t, source, n, extent, 0.0) if source.axes else source
    index = views.renewed(t.builder, index, place) if wanted[place] > 1 else index
    whole = views.unsqueeze(t.builder, x, place + 1)
    sought = views.unsqueeze(t.builder, index, place)
    here = t.apply("eq", position(t, whole, place), sought)
    here = views.expand(t.builder, here, [*shape[: place + 1], wanted[place], *shape[place + 1 :]])
    return here, views.unsqueeze(t.builder, source, place) if source.axes else source


def _any_of(t: Lowering, here: NamedArray, along: int) -> NamedArray:
    """Whether a position along an axis is one that is meant."""
    return t.apply("ne", sum_(t, here, along), 0.0)


def _added(t: Lowering, here: NamedArray, value: NamedArray, along: int) -> NamedArray:
    return sum_(t, t.apply("where", here, value, 0.0), along)


def _last_written(
    t: Lowering, x: NamedArray, here: NamedArray, value: NamedArray, along: int
) -> NamedArray:
    if all(extent == 1 for extent in t.shape(value)):
        one = views.reshape(t.builder, value, ())
        return t.apply("where", _any_of(t, here, along), one, x)
    last = amax(t, t.apply("where", here, position(t, here, along), -1.0), along, keepdim=True)
    is_last = t.apply("and", here, t.apply("eq", position(t, here, along), last))
    found = _added(t, is_last, value, along)
    is_meant = t.apply(
        "ge", NamedArray(last.node, (*last.axes[:along], *last.axes[along + 1 :])), 0.0
    )
    return t.apply("where", is_meant, found, x)


def _check_count(t: Lowering, count: int) -> None:
    if count > _MOST_SOUGHT:
        raise t.refuse(
            f"{count} positions that are data are written",
            why=f"every element is compared with each of them, with {_MOST_SOUGHT} at most",
            repair="leave this step to torch, or write one position for each row",
        )


def _first_elements(t: Lowering, x: NamedArray, shape: Sequence[int]) -> NamedArray:
    for axis, extent in enumerate(shape):
        if t.shape(x)[axis] > extent:
            x = views.slice_axis(t.builder, x, axis, 0, extent)
    return x


def _widened(t: Lowering, x: NamedArray, axis: int, extent: int, value: float) -> NamedArray:
    rest = list(t.shape(x))
    rest[axis] = extent - rest[axis]
    return views.concat(t.builder, [x, t.full(rest, value)], axis)
