"""Alignment of named arrays to common dimensions, so that operators apply to their nodes."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.errors import InputError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.factorisation import grouped, refinement
from mirage_py.ugraph.building.named_array import (
    Axis,
    NamedArray,
    axis_extent,
    flat_index,
    reindex,
    shape_of,
    without_unit_dims,
)
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr


def retarget(builder: ProgramBuilder, array: NamedArray, axes: Sequence[Axis]) -> NamedArray:
    """The same array over the given dimensions: axis i takes ``axes[i]``.

    The extents must agree, except that an axis of extent 1 takes any (it is expanded). All axes
    change at once, so dimensions may trade places.
    """
    if len(axes) != len(array.axes):
        raise InputError(f"{len(array.axes)} axes cannot become {len(axes)}", where=builder.name)
    flat: dict[int, IndexExpr] = {}
    for position, (old, new) in enumerate(zip(array.axes, axes, strict=True)):
        have, want = axis_extent(builder, old), axis_extent(builder, new)
        if have == 1:
            flat[position] = ix.const(0)
        elif have != want:
            raise InputError(f"axis {position} has extent {have}, not {want}", where=builder.name)
        elif old != new:
            flat[position] = flat_index(builder, new)
    return NamedArray(reindex(builder, array, flat), tuple(axes))


def broadcast(builder: ProgramBuilder, arrays: Sequence[NamedArray]) -> list[NamedArray]:
    """All arrays over the same axes, by NumPy's rules; then operators apply to their nodes.

    Where two arrays divide an axis into different dimensions, the common refinement is taken if
    there is one; else the first array's division, and the others read quotients and remainders.
    """
    rank = max(len(a.axes) for a in arrays)
    full = [
        NamedArray(a.node, ((),) * (rank - len(a.axes)) + a.axes)
        for a in (without_unit_dims(builder, a) for a in arrays)
    ]
    taken: dict[str, None] = {}
    axes: list[Axis] = []
    for position in range(rank):
        axis = _common_axis(builder, full, position)
        # The outer sum of a vector with itself: the second axis needs a dimension of its own.
        axis = tuple(builder.fresh_dim(d, builder.sizes[d]) if d in taken else d for d in axis)
        taken.update(dict.fromkeys(axis))
        axes.append(axis)
    return [retarget(builder, a, axes) for a in full]


def _common_axis(builder: ProgramBuilder, arrays: Sequence[NamedArray], position: int) -> Axis:
    """The dimensions over which all arrays can be read along one axis."""
    used = [a for a in arrays if a.axes[position]]
    if not used:
        return ()
    extents = [axis_extent(builder, a.axes[position]) for a in used]
    if len(dict.fromkeys(extents)) > 1:
        listed = ", ".join(str(list(shape_of(builder, a))) for a in arrays)
        raise InputError(
            f"shapes {listed} do not broadcast",
            where=builder.name,
            why=f"axis {position} has extents {', '.join(map(str, extents))}",
        )
    # Dimensions that a value really depends on come before those of an expanded axis.
    used.sort(key=lambda a: not any(d in builder.nodes[a.node].dims for d in a.axes[position]))
    axis = used[0].axes[position]
    for other in used[1:]:
        theirs = [builder.sizes[d] for d in other.axes[position]]
        ours = [builder.sizes[d] for d in axis]
        pieces = refinement(ours, theirs)
        if pieces is None or pieces == ours:
            continue
        if pieces == theirs:
            axis = other.axes[position]
            continue
        axis = tuple(
            name
            for d, parts in zip(axis, grouped(pieces, ours), strict=True)
            for name in ([d] if len(parts) == 1 else [builder.fresh_dim(d, n) for n in parts])
        )
    return axis
