"""A box of a tensor written over: what corrects a part of a result."""

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
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.field import FieldArray, FieldOps
from mirage_py.ugraph.field.values import Residues


def _shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    base, part = types
    start = a["start"]
    if part.rank != base.rank or len(start) != base.rank or part.dtype != base.dtype:
        raise refused("overwrite", types, "the part and its start have the axes of the whole")
    extents = zip(start, part.shape, base.shape, strict=True)
    if any(not 0 <= at <= whole - extent for at, extent, whole in extents):
        raise refused("overwrite", types, f"the part at {list(start)} is not inside")
    return (base,)


def _box(start: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(at, at + extent) for at, extent in zip(start, shape, strict=True))


def _over_torch(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
    whole = xs[0].clone()
    whole[_box(a["start"], xs[1].shape)] = xs[1]
    return (whole,)


def _over_field(ops: FieldOps, xs: Sequence[FieldArray], a: Attributes) -> tuple[FieldArray]:
    del ops
    base, part = xs

    def written(whole: Residues, piece: Residues) -> Residues:
        copy = whole.copy()
        copy[_box(a["start"], part.shape)] = piece
        return copy

    q = None if base.q is None or part.q is None else written(base.q, part.q)
    return (FieldArray(written(base.p, part.p), q),)


def _over_program(
    builder: ProgramBuilder, xs: Sequence[NamedArray], a: Attributes
) -> tuple[NamedArray]:
    shape = views.shape_of(builder, xs[1])
    return (_written(builder, xs[0], xs[1], list(zip(a["start"], shape, strict=True)), 0),)


def _written(
    builder: ProgramBuilder,
    base: NamedArray,
    part: NamedArray,
    box: Sequence[tuple[int, int]],
    axis: int,
) -> NamedArray:
    """The part in the box of the axes from ``axis`` on; along those before it is as wide."""
    while axis < len(box) and box[axis] == (0, views.axis_extent(builder, base.axes[axis])):
        axis += 1
    if axis == len(box):
        return part
    at, extent = box[axis]
    there = slice(at, at + extent)
    inside = views.slice_axis(builder, base, axis, at, at + extent)
    return views.replaced(
        builder, base, _written(builder, inside, part, box, axis + 1), axis, there
    )


OVERWRITE = register(
    Operator(
        "overwrite",
        2,
        _shape,
        _over_torch,
        _over_field,
        _over_program,
        (Attribute("start", tuple),),
        linear=((0, 1),),
        about="The first tensor with the second one in it, from a start on along each axis.",
    )
)
