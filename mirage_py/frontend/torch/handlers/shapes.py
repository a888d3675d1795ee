"""Views: every one changes how positions are read, none moves data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.named_array import flat_index, reindex
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.building.windows import Window, windows
from mirage_py.ugraph.ir import index as ix


@handles("view.default", "_unsafe_view.default", "reshape.default", aliases=True)
def view(t: Lowering, x: NamedArray, size: Sequence[int]) -> NamedArray:
    """The same elements in another shape."""
    return views.reshape(t.builder, x, size)


@handles("flatten.using_ints", aliases=True)
def flatten(t: Lowering, x: NamedArray, start_dim: int = 0, end_dim: int = -1) -> NamedArray:
    """Neighbouring axes as one."""
    rank = len(x.axes)
    if rank == 0:
        return views.unsqueeze(t.builder, x, 0)
    first, last = start_dim % rank, end_dim % rank
    merged = tuple(d for axis in x.axes[first : last + 1] for d in axis)
    return NamedArray(x.node, (*x.axes[:first], merged, *x.axes[last + 1 :]))


@handles("unflatten.int", aliases=True)
def unflatten(t: Lowering, x: NamedArray, dim: int, sizes: Sequence[int]) -> NamedArray:
    """One axis as several."""
    place = dim % len(x.axes)
    shape = t.shape(x)
    return views.reshape(t.builder, x, (*shape[:place], *sizes, *shape[place + 1 :]))


@handles("permute.default", aliases=True)
def permute(t: Lowering, x: NamedArray, dims: Sequence[int]) -> NamedArray:
    """The axes in another order."""
    return views.transpose(t.builder, x, dims)


@handles("transpose.int", aliases=True)
def transpose(t: Lowering, x: NamedArray, dim0: int, dim1: int) -> NamedArray:
    """Two axes change places."""
    order = list(range(len(x.axes)))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return views.transpose(t.builder, x, order)


@handles("t.default", "numpy_T.default", aliases=True)
def reverse_axes(t: Lowering, x: NamedArray) -> NamedArray:
    """The axes in reverse order."""
    return views.transpose(t.builder, x, range(len(x.axes))[::-1])


@handles("unsqueeze.default", aliases=True)
def unsqueeze(t: Lowering, x: NamedArray, dim: int) -> NamedArray:
    """A new axis of extent 1."""
    return views.unsqueeze(t.builder, x, dim)


@handles("squeeze.default", "squeeze.dim", "squeeze.dims", aliases=True)
def squeeze(t: Lowering, x: NamedArray, dim: int | Sequence[int] | None = None) -> NamedArray:
    """Without axes of extent 1."""
    if dim is None:
        return views.squeeze(t.builder, x)
    numbers = [dim] if isinstance(dim, int) else list(dim)
    rank = len(x.axes)
    for n in sorted((n % rank for n in numbers if rank), reverse=True):
        x = views.squeeze(t.builder, x, n)
    return x


@handles("expand.default", "broadcast_to.default", aliases=True)
def expand(t: Lowering, x: NamedArray, size: Sequence[int]) -> NamedArray:
    """Axes of extent 1 repeated."""
    return views.expand(t.builder, x, size)


@handles("slice.Tensor", aliases=True)
def slice_(
    t: Lowering,
    x: NamedArray,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> NamedArray:
    """A range of an axis."""
    return views.slice_axis(t.builder, x, dim, start or 0, end, step)


@handles("narrow.default", aliases=True)
def narrow(t: Lowering, x: NamedArray, dim: int, start: int, length: int) -> NamedArray:
    """``length`` positions of an axis from ``start``."""
    start %= t.shape(x)[dim]
    return views.slice_axis(t.builder, x, dim, start, start + length)


@handles("select.int", aliases=True)
def select(t: Lowering, x: NamedArray, dim: int, index: int) -> NamedArray:
    """One position of an axis, without the axis."""
    return views.select(t.builder, x, dim, index)


@handles("diagonal.default", aliases=True)
def diagonal(
    t: Lowering, x: NamedArray, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> NamedArray:
    """The elements whose positions along two axes are ``offset`` apart, along a last axis."""
    first, second = dim1 % len(x.axes), dim2 % len(x.axes)
    starts = {first: max(0, -offset), second: max(0, offset)}
    length = min(t.shape(x)[dim] - start for dim, start in starts.items())
    for dim, start in starts.items():
        x = views.slice_axis(t.builder, x, dim, start, start + length)
    x = agreeing(t, x, first, second)
    place = first - (second < first)
    order = [*(n for n in range(len(x.axes)) if n != place), place]
    return views.transpose(t.builder, x, order)


def agreeing(t: Lowering, x: NamedArray, first: int, second: int) -> NamedArray:
    """The elements whose positions along two axes agree; the second axis goes."""
    along = flat_index(t.builder, x.axes[first])
    node = reindex(t.builder, x, {second: along})
    return NamedArray(node, (*x.axes[:second], *x.axes[second + 1 :]))


@handles("unbind.int", aliases=True)
def unbind(t: Lowering, x: NamedArray, dim: int = 0) -> tuple[NamedArray, ...]:
    """Every position of an axis."""
    return tuple(views.select(t.builder, x, dim, n) for n in range(t.shape(x)[dim]))


@handles("split.Tensor", aliases=True)
def split(t: Lowering, x: NamedArray, size: int, dim: int = 0) -> tuple[NamedArray, ...]:
    """Parts of equal length along an axis; the last may be shorter."""
    starts = range(0, t.shape(x)[dim], size)
    return tuple(views.slice_axis(t.builder, x, dim, s, s + size) for s in starts)


@handles("split_with_sizes.default", aliases=True)
def split_with_sizes(
    t: Lowering, x: NamedArray, sizes: Sequence[int], dim: int = 0
) -> tuple[NamedArray, ...]:
    """Parts of the given lengths along an axis."""
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    parts = zip(ends, sizes, strict=True)
    return tuple(views.slice_axis(t.builder, x, dim, end - size, end) for end, size in parts)


@handles("chunk.default", aliases=True)
def chunk(t: Lowering, x: NamedArray, chunks: int, dim: int = 0) -> tuple[NamedArray, ...]:
    """At most ``chunks`` parts of equal length along an axis."""
    return split(t, x, -(-t.shape(x)[dim] // chunks), dim)


@handles("cat.default")
def cat(t: Lowering, tensors: Sequence[NamedArray], dim: int = 0) -> NamedArray:
    """Tensors one after the other along an axis."""
    return views.concat(t.builder, tensors, dim)


@handles("stack.default")
def stack(t: Lowering, tensors: Sequence[NamedArray], dim: int = 0) -> NamedArray:
    """Tensors one after the other along a new axis."""
    raised = [views.unsqueeze(t.builder, x, dim) for x in tensors]
    return views.concat(t.builder, raised, dim)


@handles("unfold.default", aliases=True)
def unfold(t: Lowering, x: NamedArray, dimension: int, size: int, step: int) -> NamedArray:
    """Windows along an axis; the positions inside of them are a further axis at the end."""
    if not x.axes:
        return views.unsqueeze(t.builder, x, 0)
    place = dimension % len(x.axes)
    window = Window(size, (t.shape(x)[place] - size) // step + 1, step)
    return windows(t.builder, x, {place: window}, 0.0)[0]


@handles("as_strided.default", aliases=True)
def as_strided(
    t: Lowering,
    x: NamedArray,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> NamedArray:
    """Elements of a tensor that lies in a row, at distances along new axes."""
    given = t.node_in_hand.args[0]
    assert isinstance(given, torch.fx.Node)
    whole = given.meta["val"]
    fills = whole.untyped_storage().nbytes() == whole.numel() * whole.element_size()
    if not whole.is_contiguous() or not fills:
        raise t.refuse(
            "as_strided of a tensor that does not lie in a row is not supported",
            why="its strides are those of the memory, which a program leaves open",
            repair="call .contiguous() first, or use unfold, slices and views",
        )
    axes = [(t.builder.fresh_dim("i", extent),) if extent > 1 else () for extent in size]
    place = ix.const(storage_offset or 0)
    for axis, step in zip(axes, stride, strict=True):
        place = place + flat_index(t.builder, axis) * step
    flat = views.reshape(t.builder, x, (-1,))
    return NamedArray(reindex(t.builder, flat, {0: place}), tuple(axes))


@handles("flip.default")
def flip(t: Lowering, x: NamedArray, dims: Sequence[int]) -> NamedArray:
    """Axes from their end to their start."""
    for dim in dims:
        x = views.flip(t.builder, x, dim % len(x.axes))
    return x


@handles("roll.default")
def roll(t: Lowering, x: NamedArray, shifts: Sequence[int], dims: Sequence[int] = ()) -> NamedArray:
    """Axes moved by some positions, around their ends; without axes all elements in a row."""
    if not dims:
        moved = views.roll(t.builder, views.reshape(t.builder, x, (-1,)), shifts[0], 0)
        return views.reshape(t.builder, moved, t.shape(x))
    for shift, dim in zip(shifts, dims, strict=True):
        x = views.roll(t.builder, x, shift, dim % len(x.axes))
    return x


@handles("repeat.default")
def repeat(t: Lowering, x: NamedArray, repeats: Sequence[int]) -> NamedArray:
    """The whole tensor several times along each axis."""
    return views.repeat(t.builder, x, repeats)


@handles("repeat_interleave.self_int")
def repeat_interleave(
    t: Lowering,
    x: NamedArray,
    repeats: int,
    dim: int | None = None,
    output_size: int | None = None,
) -> NamedArray:
    """Each position of an axis several times in a row."""
    del output_size
    if dim is None:
        x, dim = flatten(t, x), 0
    return views.repeat_interleave(t.builder, x, repeats, dim)


@handles("broadcast_tensors.default", aliases=True)
def broadcast_tensors(t: Lowering, tensors: Sequence[NamedArray]) -> tuple[NamedArray, ...]:
    """All tensors in one shape."""
    return tuple(views.broadcast(t.builder, list(tensors)))


@handles("slice_backward.default")
def slice_backward(
    t: Lowering, x: NamedArray, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> NamedArray:
    """x where a range of an axis was taken from, 0 elsewhere."""
    del end
    if step != 1:
        raise t.refuse(
            "the gradient of a slice with a step is not supported",
            why="a program reads every position of an axis",
            repair="leave this step to torch",
        )
    extent = sizes[dim]
    start = min(max(start + extent if start < 0 else start, 0), extent)
    return _padded(t, x, dim, start, extent - start - t.shape(x)[dim])


@handles("constant_pad_nd.default")
def constant_pad(t: Lowering, x: NamedArray, pad: Sequence[int], value: float = 0) -> NamedArray:
    """x with a number around it; ``pad`` holds pairs, the last axis first."""
    for n in range(0, len(pad), 2):
        dim = len(x.axes) - 1 - n // 2
        before, after = pad[n], pad[n + 1]
        x = _cropped(t, x, dim, before, after)
        x = _padded(t, x, dim, max(before, 0), max(after, 0), value)
    return x


@handles("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def reflection_pad(t: Lowering, x: NamedArray, pad: Sequence[int]) -> NamedArray:
    """x with its elements around it in reverse, but for the outermost ones."""

    def margin(x: NamedArray, dim: int, count: int, *, is_front: bool) -> NamedArray:
        first = 1 if is_front else t.shape(x)[dim] - 1 - count
        return views.flip(t.builder, views.slice_axis(t.builder, x, dim, first, first + count), dim)

    return _with_margins(t, x, pad, margin)


@handles("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def replication_pad(t: Lowering, x: NamedArray, pad: Sequence[int]) -> NamedArray:
    """x with its outermost elements repeated around it."""

    def margin(x: NamedArray, dim: int, count: int, *, is_front: bool) -> NamedArray:
        shape = t.shape(x)
        first = 0 if is_front else shape[dim] - 1
        end = views.slice_axis(t.builder, x, dim, first, first + 1)
        return views.expand(t.builder, end, (*shape[:dim], count, *shape[dim + 1 :]))

    return _with_margins(t, x, pad, margin)


def _with_margins(
    t: Lowering, x: NamedArray, pad: Sequence[int], margin: Callable[..., NamedArray]
) -> NamedArray:
    """x between what ``margin`` makes of it for each end of its last axes; without its ends where
    margins are negative.
    """
    for n in range(0, len(pad), 2):
        dim, (before, after) = len(x.axes) - 1 - n // 2, pad[n : n + 2]
        x = _cropped(t, x, dim, before, after)
        front = [margin(x, dim, before, is_front=True)] if before > 0 else []
        back = [margin(x, dim, after, is_front=False)] if after > 0 else []
        x = views.concat(t.builder, [*front, x, *back], dim)
    return x


def _cropped(t: Lowering, x: NamedArray, dim: int, before: int, after: int) -> NamedArray:
    """x without its ends where margins are negative."""
    end = t.shape(x)[dim] + min(after, 0)
    return views.slice_axis(t.builder, x, dim, max(-before, 0), end)


def _padded(
    t: Lowering, x: NamedArray, dim: int, before: int, after: int, value: float = 0
) -> NamedArray:
    shape = t.shape(x)
    dim %= len(shape)
    parts = [
        t.full((*shape[:dim], extent, *shape[dim + 1 :]), value) if extent else None
        for extent in (before, after)
    ]
    found = [p for p in (parts[0], x, parts[1]) if p is not None]
    return views.concat(t.builder, found, dim)


@handles("slice_scatter.default")
def slice_scatter(
    t: Lowering,
    x: NamedArray,
    source: NamedArray,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> NamedArray:
    """x with a range of an axis replaced."""
    return views.replaced(t.builder, x, source, dim, slice(start, end, step))


@handles("select_scatter.default")
def select_scatter(
    t: Lowering, x: NamedArray, source: NamedArray, dim: int, index: int
) -> NamedArray:
    """x with one position of an axis replaced."""
    at = index % t.shape(x)[dim]
    raised = views.unsqueeze(t.builder, source, dim % len(x.axes))
    return views.replaced(t.builder, x, raised, dim, slice(at, at + 1, 1))
