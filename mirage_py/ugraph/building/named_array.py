"""Arrays with positional axes over the named dimensions of a ProgramBuilder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from mirage_py.errors import InputError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.sharing import substituted
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr

Axis = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedArray:
    """``node`` read as an array: each axis is a tuple of dimensions, major to minor.

    ``()`` is an axis of extent 1. No dimension occurs twice. An axis may name dimensions on which
    the node does not depend (an expanded axis); the node depends on no others than those named.
    """

    node: int
    axes: tuple[Axis, ...]


def axis_extent(builder: ProgramBuilder, axis: Axis) -> int:
    """How many elements an axis has."""
    return prod(builder.sizes[d] for d in axis)


def shape_of(builder: ProgramBuilder, array: NamedArray) -> tuple[int, ...]:
    """The extent of each axis."""
    return tuple(axis_extent(builder, axis) for axis in array.axes)


def axis_number(axis: int, rank: int, where: str) -> int:
    """The axis counted from the front; negative ones count from the back."""
    if not -rank <= axis < rank:
        raise InputError(f"axis {axis} of an array of {rank} axes", where=where)
    return axis % rank


def flat_index(builder: ProgramBuilder, axis: Axis) -> IndexExpr:
    """The position along an axis, from its dimensions."""
    position = ix.const(0)
    stride = axis_extent(builder, axis)
    for d in axis:
        stride //= builder.sizes[d]
        position = position + ix.dim(d) * stride
    return position


def reindex(builder: ProgramBuilder, array: NamedArray, flat: Mapping[int, IndexExpr]) -> int:
    """The array's node with the position along some axes given by expressions."""
    mapping: dict[str, IndexExpr] = {}
    for place, position in flat.items():
        mapping |= digits_of(builder, array.axes[place], position)
    return substituted(builder, array.node, mapping)


def digits_of(builder: ProgramBuilder, axis: Axis, position: IndexExpr) -> dict[str, IndexExpr]:
    """Each dimension of an axis as a function of the position along it."""
    digits: dict[str, IndexExpr] = {}
    stride = axis_extent(builder, axis)
    for d in axis:
        size = builder.sizes[d]
        stride //= size
        digits[d] = ix.simplify((position // stride) % size, builder.sizes)
    return digits


def without_unit_dims(builder: ProgramBuilder, array: NamedArray) -> NamedArray:
    """Dimensions of size 1 are read at 0, so that an axis of extent 1 is always ()."""
    units = [d for axis in array.axes for d in axis if builder.sizes[d] == 1]
    if not units:
        return array
    node = substituted(builder, array.node, {d: ix.const(0) for d in units})
    return NamedArray(node, tuple(tuple(d for d in a if d not in units) for a in array.axes))
