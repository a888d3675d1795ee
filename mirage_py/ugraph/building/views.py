"""Views on positional arrays, as changes of index: no view ever copies.

A program has named dimensions; tensor libraries have positional axes. A NamedArray is a node of a
ProgramBuilder together with the order of its dimensions as axes. Reshape, slice, repeat and the
like rename, split and merge dimensions and substitute index expressions into the loads below the
node, so all that reaches a kernel is address arithmetic. Of a large value they read a tensor in
memory instead (sharing.py).

Every function takes the builder first and returns a new NamedArray. An impossible shape raises
InputError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from mirage_py.errors import InputError
from mirage_py.ugraph.building.alignment import broadcast, retarget
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.factorisation import grouped, refinement, segments
from mirage_py.ugraph.building.named_array import (
    Axis,
    NamedArray,
    axis_extent,
    axis_number,
    digits_of,
    flat_index,
    reindex,
    shape_of,
    without_unit_dims,
)
from mirage_py.ugraph.building.sharing import store_pieces, substituted
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.predicates import TRUE, conjunction

__all__ = [
    "Axis",
    "NamedArray",
    "axis_extent",
    "broadcast",
    "concat",
    "expand",
    "flip",
    "from_input",
    "output",
    "renewed",
    "repeat",
    "repeat_interleave",
    "replaced",
    "reshape",
    "retarget",
    "roll",
    "select",
    "shape_of",
    "slice_axis",
    "squeeze",
    "transpose",
    "unsqueeze",
]


def from_input(builder: ProgramBuilder, name: str, hints: Sequence[str] = ()) -> NamedArray:
    """The input called ``name``, with one new dimension per axis, named after ``hints``."""
    shape = builder.inputs[name].shape
    axes: list[Axis] = []
    for position, extent in enumerate(shape):
        hint = hints[position] if position < len(hints) else f"i{position}"
        axes.append((builder.fresh_dim(hint, extent),) if extent > 1 else ())
    index = [ix.dim(axis[0]) if axis else ix.const(0) for axis in axes]
    return NamedArray(builder.load(name, index), tuple(axes))


def output(builder: ProgramBuilder, name: str, array: NamedArray, dtype: DType) -> None:
    """Declare the array to be a result of the program, row-major."""
    index = [flat_index(builder, axis) for axis in array.axes]
    builder.output(name, array.node, index, dtype)


# -- moving axes ---------------------------------------------------------------------------------


def transpose(builder: ProgramBuilder, array: NamedArray, perm: Sequence[int]) -> NamedArray:
    """Axis ``perm[i]`` becomes axis i."""
    rank = len(array.axes)
    order = [axis_number(p, rank, builder.name) for p in perm]
    if sorted(order) != list(range(rank)):
        raise InputError(
            f"{list(perm)} is no permutation of {rank} axes",
            where=builder.name,
            repair="name every axis once",
        )
    return NamedArray(array.node, tuple(array.axes[p] for p in order))


def unsqueeze(builder: ProgramBuilder, array: NamedArray, axis: int) -> NamedArray:
    """Put an axis of extent 1 at position ``axis`` of the result."""
    place = axis_number(axis, len(array.axes) + 1, builder.name)
    return NamedArray(array.node, (*array.axes[:place], (), *array.axes[place:]))


def squeeze(builder: ProgramBuilder, array: NamedArray, axis: int | None = None) -> NamedArray:
    """Drop an axis if its extent is 1; with None, every such axis."""
    array = without_unit_dims(builder, array)
    if axis is None:
        return NamedArray(array.node, tuple(a for a in array.axes if a))
    place = axis_number(axis, len(array.axes), builder.name)
    if array.axes[place]:
        return array
    return NamedArray(array.node, (*array.axes[:place], *array.axes[place + 1 :]))


def select(builder: ProgramBuilder, array: NamedArray, axis: int, position: int) -> NamedArray:
    """The slice at one position of an axis, without that axis."""
    place = axis_number(axis, len(array.axes), builder.name)
    extent = axis_extent(builder, array.axes[place])
    if not -extent <= position < extent:
        raise InputError(
            f"position {position} is outside axis {place} of extent {extent}", where=builder.name
        )
    read = reindex(builder, array, {place: ix.const(position % extent)})
    return NamedArray(read, (*array.axes[:place], *array.axes[place + 1 :]))


# -- shape ---------------------------------------------------------------------------------------


def reshape(builder: ProgramBuilder, array: NamedArray, shape: Sequence[int]) -> NamedArray:
    """The same elements in row-major order under another shape; one extent may be -1.

    A dimension is split where an axis ends inside it. Where old and new axes cut across each other
    (2x3 to 3x2) the new axes are new dimensions and the old ones quotients and remainders of them.
    """
    array = without_unit_dims(builder, array)
    wanted = _completed_shape(builder, shape_of(builder, array), shape)
    dims = [d for axis in array.axes for d in axis]
    sizes = [builder.sizes[d] for d in dims]
    targets = [(axis, n) for axis, n in enumerate(wanted) if n > 1]
    mapping: dict[str, IndexExpr] = {}
    axes: list[Axis] = [()] * len(wanted)
    for old, new in segments(sizes, [n for _, n in targets]):
        made = _recut(builder, [dims[i] for i in old], [targets[j][1] for j in new], mapping)
        for j, axis in zip(new, made, strict=True):
            axes[targets[j][0]] = axis
    return NamedArray(substituted(builder, array.node, mapping), tuple(axes))


def expand(builder: ProgramBuilder, array: NamedArray, shape: Sequence[int]) -> NamedArray:
    """Repeat axes of extent 1, and put new axes in front, to have ``shape``; -1 keeps an axis."""
    have = shape_of(builder, array)
    extra = len(shape) - len(have)
    if extra < 0:
        raise InputError(
            f"an array of {len(have)} axes cannot be expanded to {len(shape)}", where=builder.name
        )
    axes: list[Axis] = []
    for position, want in enumerate(shape):
        old = have[position - extra] if position >= extra else 1
        if want in (-1, old):
            axes.append(array.axes[position - extra] if position >= extra else ())
        elif old == 1 and want > 0:
            axes.append((builder.fresh_dim("r", want),))
        else:
            raise InputError(
                f"axis {position} of extent {old} cannot be expanded to {want}",
                where=builder.name,
                repair="only an axis of extent 1 can be repeated; use repeat for others",
            )
    return NamedArray(array.node, tuple(axes))


def repeat(builder: ProgramBuilder, array: NamedArray, repeats: Sequence[int]) -> NamedArray:
    """The whole array ``repeats[i]`` times along axis i (``numpy.tile``); may add axes in front."""
    extra = len(repeats) - len(array.axes)
    if extra < 0 or any(r < 1 for r in repeats):
        raise InputError(
            f"repeats {list(repeats)} do not fit an array of {len(array.axes)} axes",
            where=builder.name,
            repair="give one positive count per axis",
        )
    old: tuple[Axis, ...] = ((),) * extra + array.axes
    axes = [
        (builder.fresh_dim("r", count), *axis) if count > 1 else axis
        for axis, count in zip(old, repeats, strict=True)
    ]
    return NamedArray(array.node, tuple(axes))


def repeat_interleave(
    builder: ProgramBuilder, array: NamedArray, repeats: int, axis: int
) -> NamedArray:
    """Each element of an axis ``repeats`` times in a row (``numpy.repeat``)."""
    place = axis_number(axis, len(array.axes), builder.name)
    if repeats < 1:
        raise InputError(f"cannot repeat {repeats} times", where=builder.name)
    if repeats == 1:
        return array
    axes = list(array.axes)
    axes[place] = (*axes[place], builder.fresh_dim("r", repeats))
    return NamedArray(array.node, tuple(axes))


# -- parts ---------------------------------------------------------------------------------------


def slice_axis(
    builder: ProgramBuilder,
    array: NamedArray,
    axis: int,
    start: int = 0,
    stop: int | None = None,
    step: int = 1,
) -> NamedArray:
    """``array[..., start:stop:step, ...]`` with Python's rules; step must be positive."""
    place = axis_number(axis, len(array.axes), builder.name)
    extent = axis_extent(builder, array.axes[place])
    if step < 1:
        raise InputError(f"a slice with step {step}", where=builder.name, repair="use a step >= 1")
    first, last, _ = slice(start, stop, step).indices(extent)
    length = len(range(first, last, step))
    if length == 0:
        raise InputError(
            f"the slice {start}:{stop}:{step} of axis {place} (extent {extent}) is empty",
            where=builder.name,
            why="an empty tensor needs no kernel",
        )
    if length == extent:
        return array
    new: Axis = (builder.fresh_dim(array.axes[place][-1], length),) if length > 1 else ()
    position = flat_index(builder, new) * step + first
    node = reindex(builder, array, {place: position})
    return NamedArray(node, (*array.axes[:place], new, *array.axes[place + 1 :]))


def flip(builder: ProgramBuilder, array: NamedArray, axis: int) -> NamedArray:
    """An axis from its end to its start."""
    extent = axis_extent(builder, array.axes[axis])
    return _moved(builder, array, axis, lambda position: position * -1 + (extent - 1))


def roll(builder: ProgramBuilder, array: NamedArray, shift: int, axis: int) -> NamedArray:
    """An axis moved by ``shift`` positions; what leaves it at one end comes in at the other."""
    extent = axis_extent(builder, array.axes[axis])
    back = -shift % extent
    if back == 0:
        return array
    return _moved(builder, array, axis, lambda position: (position + back) % extent)


def renewed(builder: ProgramBuilder, array: NamedArray, axis: int) -> NamedArray:
    """The same on another dimension, so that it meets itself element by element."""
    return _moved(builder, array, axis, lambda position: position)


def _moved(
    builder: ProgramBuilder,
    array: NamedArray,
    axis: int,
    place: Callable[[IndexExpr], IndexExpr],
) -> NamedArray:
    """An axis whose elements are elsewhere on it."""
    extent = axis_extent(builder, array.axes[axis])
    if extent == 1:
        return array
    new: Axis = (builder.fresh_dim(array.axes[axis][-1], extent),)
    node = reindex(builder, array, {axis: place(flat_index(builder, new))})
    return NamedArray(node, (*array.axes[:axis], new, *array.axes[axis + 1 :]))


def concat(builder: ProgramBuilder, arrays: Sequence[NamedArray], axis: int) -> NamedArray:
    """Arrays one after the other along an axis; all other axes agree.

    Each part is read at ``(e + offset) % extent`` so that no index leaves it, and masks of the new
    dimension e choose among the parts. Those with large matmuls are in memory, as each would be
    computed for all of e.
    """
    if not arrays:
        raise InputError("nothing to concatenate", where=builder.name)
    rank = len(arrays[0].axes)
    place = axis_number(axis, rank, builder.name)
    shapes = [shape_of(builder, a) for a in arrays]
    extents = [shape[place] if len(shape) == rank else 0 for shape in shapes]
    others = [(*shape[:place], *shape[place + 1 :]) for shape in shapes]
    if 0 in extents or any(other != others[0] for other in others):
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise InputError(
            f"shapes {listed} cannot be concatenated along axis {place}", where=builder.name
        )
    if len(arrays) == 1:
        return arrays[0]
    total = sum(extents)
    store_pieces(builder, [a.node for a in arrays], [total / n for n in extents])
    new = builder.fresh_dim(next((d for d in arrays[0].axes[place][-1:]), "c"), total)
    position = ix.dim(new)
    parts: list[NamedArray] = []
    start = 0
    for array, extent in zip(arrays, extents, strict=True):
        inside = ix.simplify((position + (-start) % extent) % extent, builder.sizes)
        node = reindex(builder, array, {place: inside})
        parts.append(NamedArray(node, (*array.axes[:place], (new,), *array.axes[place + 1 :])))
        start += extent
    parts = broadcast(builder, parts)
    result = parts[-1].node
    end = total - extents[-1]
    axes = parts[0].axes
    position = flat_index(builder, axes[place])
    for part, extent in zip(reversed(parts[:-1]), reversed(extents[:-1]), strict=True):
        result = builder.apply(
            "where", builder.mask(ix.compare("lt", position, end)), part.node, result
        )
        end -= extent
    return NamedArray(result, axes)


def replaced(
    builder: ProgramBuilder, array: NamedArray, part: NamedArray, axis: int, where: slice
) -> NamedArray:
    """The array with ``part`` in a range of an axis; all other axes agree."""
    place = axis_number(axis, len(array.axes), builder.name)
    extent = axis_extent(builder, array.axes[place])
    first, last, step = where.indices(extent)
    length = len(range(first, last, step))
    if length == extent:
        return part
    new = builder.fresh_dim(next(iter(array.axes[place][-1:]), "c"), extent)
    position = ix.dim(new)
    around = length * step
    inside = ix.simplify((position + (-first) % around) // step % length, builder.sizes)
    nodes = (reindex(builder, array, {place: position}), reindex(builder, part, {place: inside}))
    parts = broadcast(
        builder,
        [
            NamedArray(n, (*a.axes[:place], (new,), *a.axes[place + 1 :]))
            for n, a in zip(nodes, (array, part), strict=True)
        ],
    )
    axes = parts[0].axes
    position = flat_index(builder, axes[place])
    chosen, end = TRUE, first + (length - 1) * step + 1
    if end < extent:
        chosen = ix.compare("lt", position, end)
    if first:
        chosen = conjunction(ix.compare("ge", position, first), chosen)
    if step > 1:
        offset = ix.simplify((position + (-first) % step) % step, builder.sizes)
        chosen = conjunction(ix.compare("eq", offset, 0), chosen)
    mask = builder.mask(chosen)
    return NamedArray(builder.apply("where", mask, parts[1].node, parts[0].node), axes)


def _completed_shape(
    builder: ProgramBuilder, old: Sequence[int], shape: Sequence[int]
) -> tuple[int, ...]:
    total = prod(old)
    known = prod(n for n in shape if n != -1)
    open_axes = list(shape).count(-1)
    if open_axes == 1 and known > 0 and total % known == 0:
        return tuple(total // known if n == -1 else n for n in shape)
    if open_axes or known != total or min(shape, default=1) < 1:
        raise InputError(
            f"shape {list(old)} cannot become {list(shape)}",
            where=builder.name,
            why=f"it has {total} elements",
            repair="the products of both shapes must agree; at most one extent may be -1",
        )
    return tuple(shape)


def _recut(
    builder: ProgramBuilder,
    dims: Sequence[str],
    extents: Sequence[int],
    mapping: dict[str, IndexExpr],
) -> list[Axis]:
    """New axes of the given extents over the elements of ``dims``; ``mapping`` says how to read."""
    sizes = [builder.sizes[d] for d in dims]
    pieces = refinement(sizes, extents)
    if pieces is None:
        made: list[Axis] = [(builder.fresh_dim(dims[-1], n),) for n in extents]
        whole = tuple(d for axis in made for d in axis)
        mapping |= digits_of(builder, tuple(dims), flat_index(builder, whole))
        return made
    fine: list[str] = []
    for d, parts in zip(dims, grouped(pieces, sizes), strict=True):
        if len(parts) == 1:
            fine.append(d)
            continue
        split = tuple(builder.fresh_dim(d, n) for n in parts)
        mapping[d] = flat_index(builder, split)
        fine.extend(split)
    ends = iter(fine)
    return [tuple(next(ends) for _ in parts) for parts in grouped(pieces, extents)]
