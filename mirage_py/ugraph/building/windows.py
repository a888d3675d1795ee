"""Sliding windows as index expressions: what convolutions and pooling read.

A window is an axis with two dimensions in the place of one: ``o`` says where the window stands,
``k`` is the position in it. The element is at ``o * stride + k * dilation - before``; where that is
in the padding, a mask puts another value. No window copies anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import (
    Axis,
    NamedArray,
    axis_extent,
    flat_index,
    reindex,
)
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.predicates import TRUE, conjunction


@dataclass(frozen=True, slots=True)
class Window:
    """``count`` windows of ``extent`` elements of an axis, ``before`` elements of padding in front.

    ``upsampled`` says that there are ``stride - 1`` zeros between neighbours of the axis, and that
    windows are one element apart: a transposed convolution reads so, backwards.
    """

    extent: int
    count: int
    stride: int = 1
    before: int = 0
    dilation: int = 1
    upsampled: bool = False

    def is_split(self, size: int) -> bool:
        """Whether the windows lie side by side and make up the axis: it is a reshape then."""
        fits = self.stride == self.extent and self.count * self.extent == size
        return fits and self.has_each_once(size)

    def has_each_once(self, size: int) -> bool:
        """Whether no element is in two windows, and none is padding; some may be in no window."""
        dense = self.extent == 1 or self.dilation == 1
        fits = self.stride >= self.extent and (self.count - 1) * self.stride + self.extent <= size
        return dense and fits and not self.before and not self.upsampled


def windows(
    builder: ProgramBuilder,
    array: NamedArray,
    along: Mapping[int, Window],
    fill: float,
    *,
    fused: bool = False,
) -> tuple[NamedArray, int]:
    """The array with windows along some axes, ``fill`` in the padding.

    An axis becomes that of the windows' places; the positions inside of them are further axes at
    the end, in the order of ``along``. They read the array in memory, unless they make it up, or
    are ``fused`` and have each element once. The second result is the mask of what is no padding.
    """
    axes = list(array.axes)
    inner: list[Axis] = []
    at: dict[int, IndexExpr] = {}
    mask: Predicate = TRUE
    for place, window in along.items():
        size = axis_extent(builder, array.axes[place])
        hint = next(iter(array.axes[place][-1:]), "w")
        axes[place] = (builder.fresh_dim(hint, window.count),) if window.count > 1 else ()
        inner.append((builder.fresh_dim("k", window.extent),) if window.extent > 1 else ())
        outer, inside = flat_index(builder, axes[place]), flat_index(builder, inner[-1])
        at[place], valid = _element(builder, window, size, outer, inside)
        mask = conjunction(mask, valid)
    fits = Window.has_each_once if fused else Window.is_split
    if any(not fits(w, axis_extent(builder, array.axes[p])) for p, w in along.items()):
        builder.stored(array.node)
        # There an axis is one, also of channels that a norm has in groups.
        known = builder.nodes[array.node].dims
        for place, axis in enumerate(array.axes):
            if len(axis) > 1 and place not in along and all(d in known for d in axis):
                axes[place] = (builder.fresh_dim(axis[0], axis_extent(builder, axis)),)
                at[place] = flat_index(builder, axes[place])
    node = reindex(builder, array, at)
    if mask == TRUE:
        return NamedArray(node, (*axes, *inner)), builder.const(1.0)
    truth = builder.mask(mask)
    node = builder.apply("where", truth, node, builder.const(fill))
    return NamedArray(node, (*axes, *inner)), truth


def _element(
    builder: ProgramBuilder, window: Window, size: int, outer: IndexExpr, inside: IndexExpr
) -> tuple[IndexExpr, Predicate]:
    """The position on the axis, kept inside it, and where that is no padding."""
    stride, before = window.stride, window.before
    if not window.upsampled:
        position = outer * stride + inside * window.dilation
        return _inside(builder, position, before, size)
    # o + before - k * dilation has to be a multiple of the stride; a shift keeps it positive.
    reach = (window.extent - 1) * window.dilation
    shift = -(-reach // stride) * stride
    position = outer - inside * window.dilation + (before + shift)
    found, valid = _inside(builder, position // stride, shift // stride, size)
    if stride > 1:
        valid = conjunction(ix.compare("eq", position % stride, 0), valid)
    return found, valid


def _inside(
    builder: ProgramBuilder, position: IndexExpr, before: int, size: int
) -> tuple[IndexExpr, Predicate]:
    """``position - before``, wrapped where it is outside of the axis, and where it is inside."""
    position = ix.simplify(position, builder.sizes)
    low, high = position.bounds(builder.sizes)
    valid: Predicate = TRUE
    if low < before:
        valid = ix.compare("ge", position, before)
    if high >= before + size:
        valid = conjunction(valid, ix.compare("lt", position, before + size))
    if valid == TRUE:
        return position - before, TRUE
    return ix.simplify((position + (-before) % size) % size, builder.sizes), valid
