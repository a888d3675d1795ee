"""Layout operators: transpose, reshape, slice, split, concat, pad, expand, flip.

They move elements and compute nothing, so each is a linear map of all its operands together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
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
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.building.windows import Window, windows
from mirage_py.ugraph.field import FieldArray, concatenate
from mirage_py.ugraph.field.values import Residues

_ALONE = ((0,),)


def axis_of(name: str, operands: Sequence[TensorType], axis: int) -> int:
    """The axis, which has to be in [0, rank)."""
    if not 0 <= axis < operands[0].rank:
        raise refused(name, operands, f"there is no axis {axis}; axes count from the front")
    return axis


# -- transpose, reshape, expand ------------------------------------------------------------------


def _transpose_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    perm = a["perm"]
    if sorted(perm) != list(range(types[0].rank)):
        raise refused("transpose", types, f"{list(perm)} is no permutation of its axes")
    return (types[0].of_shape(tuple(types[0].shape[p] for p in perm)),)


TRANSPOSE = register(
    Operator(
        "transpose",
        1,
        _transpose_shape,
        lambda xs, a: (xs[0].permute(a["perm"]),),
        lambda ops, xs, a: (xs[0].transpose(a["perm"]),),
        lambda b, xs, a: (views.transpose(b, xs[0], a["perm"]),),
        (Attribute("perm", tuple),),
        linear=_ALONE,
        about="Axis perm[i] becomes axis i.",
    )
)


def _reshape_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    shape = a["shape"]
    if min(shape, default=1) < 1 or prod(shape) != types[0].elements:
        raise refused("reshape", types, f"{list(shape)} does not have {types[0].elements} elements")
    return (types[0].of_shape(shape),)


RESHAPE = register(
    Operator(
        "reshape",
        1,
        _reshape_shape,
        lambda xs, a: (xs[0].reshape(a["shape"]),),
        lambda ops, xs, a: (xs[0].reshape(a["shape"]),),
        lambda b, xs, a: (views.reshape(b, xs[0], a["shape"]),),
        (Attribute("shape", tuple),),
        linear=_ALONE,
        about="The same elements in row-major order under another shape.",
    )
)


def _expand_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    shape, extra = a["shape"], len(a["shape"]) - types[0].rank
    fits = extra >= 0 and all(
        old in (1, new) for old, new in zip(types[0].shape, shape[extra:], strict=True)
    )
    if not fits or min(shape, default=1) < 1:
        raise refused("expand", types, f"it cannot be repeated to {list(shape)}")
    return (types[0].of_shape(shape),)


EXPAND = register(
    Operator(
        "expand",
        1,
        _expand_shape,
        lambda xs, a: (xs[0].expand(a["shape"]),),
        lambda ops, xs, a: (xs[0].broadcast(a["shape"]),),
        lambda b, xs, a: (views.expand(b, xs[0], a["shape"]),),
        (Attribute("shape", tuple),),
        linear=_ALONE,
        about="Axes of extent 1 repeated, and new axes in front.",
    )
)


# -- slice, split, flip --------------------------------------------------------------------------


def _slice_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    axis = axis_of("slice", types, a["axis"])
    start, stop, step = a["start"], a["stop"], a["step"]
    if not (0 <= start < stop <= types[0].shape[axis] and step > 0):
        why = f"{start}:{stop}:{step} is no range within {types[0].shape[axis]} elements"
        raise refused("slice", types, why)
    shape = list(types[0].shape)
    shape[axis] = len(range(start, stop, step))
    return (types[0].of_shape(tuple(shape)),)


def _part(a: Attributes, array: Any) -> Any:
    """NumPy's slice of the axis, of anything that is indexed so."""
    whole = (slice(None),) * a["axis"]
    return array[(*whole, slice(a["start"], a["stop"], a["step"]))]


SLICE = register(
    Operator(
        "slice",
        1,
        _slice_shape,
        lambda xs, a: (_part(a, xs[0]),),
        lambda ops, xs, a: (_part(a, xs[0]),),
        lambda b, xs, a: (views.slice_axis(b, xs[0], a["axis"], a["start"], a["stop"], a["step"]),),
        (
            Attribute("axis", int),
            Attribute("start", int, 0),
            Attribute("stop", int),
            Attribute("step", int, 1),
        ),
        linear=_ALONE,
        about="x[start:stop:step] along an axis.",
    )
)


def _split_shape(types: Sequence[TensorType], a: Attributes) -> list[TensorType]:
    axis = axis_of("split", types, a["axis"])
    shape, sizes = types[0].shape, a["sizes"]
    if min(sizes, default=0) < 1 or sum(sizes) != shape[axis]:
        raise refused("split", types, f"{list(sizes)} does not add up to {shape[axis]}")
    return [types[0].of_shape((*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(sizes, initial=0)))


def _pieces(a: Attributes, array: Any) -> list[Any]:
    whole = (slice(None),) * a["axis"]
    return [array[(*whole, slice(*bounds))] for bounds in _bounds(a["sizes"])]


SPLIT = register(
    Operator(
        "split",
        1,
        _split_shape,
        lambda xs, a: list(xs[0].split(list(a["sizes"]), a["axis"])),
        lambda ops, xs, a: _pieces(a, xs[0]),
        lambda b, xs, a: [
            views.slice_axis(b, xs[0], a["axis"], *bounds) for bounds in _bounds(a["sizes"])
        ],
        (Attribute("axis", int), Attribute("sizes", tuple)),
        linear=_ALONE,
        about="Pieces of the given sizes along an axis, one result each.",
    )
)


def _flip_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    axis_of("flip", types, a["axis"])
    return (types[0],)


def _flipped(array: FieldArray, axis: int) -> FieldArray:
    q = None if array.q is None else np.flip(array.q, axis)
    return FieldArray(np.flip(array.p, axis), q)


FLIP = register(
    Operator(
        "flip",
        1,
        _flip_shape,
        lambda xs, a: (xs[0].flip(a["axis"]),),
        lambda ops, xs, a: (_flipped(xs[0], a["axis"]),),
        lambda b, xs, a: (views.flip(b, xs[0], a["axis"]),),
        (Attribute("axis", int),),
        linear=_ALONE,
        about="An axis from its end to its start.",
    )
)


# -- concat, pad, enlarge ------------------------------------------------------------------------


def _concat_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    axis = axis_of("concat", types, a["axis"])
    rests = [(t.dtype, t.shape[:axis], t.shape[axis + 1 :]) for t in types]
    if any(rest != rests[0] for rest in rests):
        raise refused("concat", types, f"they differ in more than axis {axis}")
    shape = list(types[0].shape)
    shape[axis] = sum(t.shape[axis] for t in types)
    return (types[0].of_shape(tuple(shape)),)


def _torch_concat(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
    import torch

    return (torch.cat(tuple(xs), a["axis"]),)


CONCAT = register(
    Operator(
        "concat",
        -1,
        _concat_shape,
        _torch_concat,
        lambda ops, xs, a: (concatenate(xs, a["axis"]),),
        lambda b, xs, a: (views.concat(b, xs, a["axis"]),),
        (Attribute("axis", int),),
        linear=((-1,),),
        about="Tensors one after the other along an axis.",
    )
)


def _pad_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    before, after = a["before"], a["after"]
    if len(before) != types[0].rank or len(after) != types[0].rank:
        raise refused("pad", types, "before and after have one number for each axis")
    if min((*before, *after), default=0) < 0:
        raise refused("pad", types, "padding is not negative; slice to make a tensor smaller")
    extents = zip(before, types[0].shape, after, strict=True)
    return (types[0].of_shape(tuple(sum(numbers) for numbers in extents)),)


def _torch_pad(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
    import torch

    pairs = list(zip(a["before"], a["after"], strict=True))
    amounts = [n for pair in reversed(pairs) for n in pair]
    return (torch.nn.functional.pad(xs[0], amounts),)


def _padded(array: FieldArray, a: Attributes) -> FieldArray:
    """A field array in the middle of zeros."""
    extents = zip(a["before"], array.shape, a["after"], strict=True)
    shape = [sum(numbers) for numbers in extents]
    inside = tuple(slice(n, n + extent) for n, extent in zip(a["before"], array.shape, strict=True))

    def around(part: Residues) -> Residues:
        whole = np.zeros(shape, dtype=np.int64)
        whole[inside] = part
        return whole

    return FieldArray(around(array.p), None if array.q is None else around(array.q))


def _program_pad(
    builder: ProgramBuilder, xs: Sequence[NamedArray], a: Attributes
) -> tuple[NamedArray]:
    """Windows of one element, as many as the result is wide."""
    shape = views.shape_of(builder, xs[0])
    along = {
        axis: Window(1, n + shape[axis] + m, before=n)
        for axis, (n, m) in enumerate(zip(a["before"], a["after"], strict=True))
        if n or m
    }
    read, _ = windows(builder, xs[0], along, 0.0)
    return (NamedArray(read.node, read.axes[: len(shape)]),)


PAD = register(
    Operator(
        "pad",
        1,
        _pad_shape,
        _torch_pad,
        lambda ops, xs, a: (_padded(xs[0], a),),
        _program_pad,
        (Attribute("before", tuple), Attribute("after", tuple)),
        linear=_ALONE,
        about="Zeros around a tensor: so many before and after each axis.",
    )
)


def _enlarge_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    kernel, shape = a["kernel"], types[0].shape
    old = shape[len(shape) - len(kernel) :]
    if len(kernel) != types[0].rank - 2:
        raise refused("enlarge", types, "kernel has one extent for each axis behind the channels")
    if any(new < have or (new - have) % 2 for new, have in zip(kernel, old, strict=True)):
        raise refused("enlarge", types, f"{list(kernel)} is not {list(old)} and equal borders")
    return (types[0].of_shape((*shape[:2], *kernel)),)


def _borders(shape: Sequence[int], a: Attributes) -> Attributes:
    """What `pad` calls the zeros around a kernel."""
    sides = [(new - old) // 2 for new, old in zip(a["kernel"], shape[2:], strict=True)]
    return {"before": (0, 0, *sides), "after": (0, 0, *sides)}


ENLARGE = register(
    replace(
        PAD,
        name="enlarge",
        shapes=_enlarge_shape,
        over_torch=lambda xs, a: _torch_pad(xs, _borders(xs[0].shape, a)),
        over_field=lambda ops, xs, a: (_padded(xs[0], _borders(xs[0].shape, a)),),
        over_program=lambda b, xs, a: _program_pad(b, xs, _borders(views.shape_of(b, xs[0]), a)),
        attributes=(Attribute("kernel", tuple),),
        about="A weight whose kernel is made larger by zeros, the same on both sides.",
    )
)
