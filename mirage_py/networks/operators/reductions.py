"""Reductions over axes: sum, mean, largest element; and softmax, which is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mirage_py.networks.operators.operator import (
    Attribute,
    Attributes,
    Operator,
    OverField,
    OverProgram,
    TorchMeaning,
    refused,
    register,
)
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.ugraph.building import composites
from mirage_py.ugraph.building.named_array import Axis, NamedArray
from mirage_py.ugraph.field import FieldArray, FieldOps


def _reduced_type(name: str, types: Sequence[TensorType], a: Attributes) -> TensorType:
    axes, rank = a["axes"], types[0].rank
    if not axes or sorted(set(axes)) != list(axes) or axes[0] < 0 or axes[-1] >= rank:
        raise refused(name, types, f"{list(axes)} are no ascending axes of it")
    return types[0].of_shape(_kept(types[0].shape, axes, bool(a["keep"]), 1))


def _kept(items: Sequence[Any], axes: Sequence[int], keep: bool, one: Any) -> tuple[Any, ...]:
    """What belongs to the axes of the result; ``one`` stands for a reduced axis."""
    return tuple(
        one if n in axes else item for n, item in enumerate(items) if keep or n not in axes
    )


def _reduction(
    name: str,
    torch_name: str,
    over_field: Any,
    over_program: Any,
    linear: tuple[tuple[int, ...], ...],
    about: str,
) -> Operator:
    def over_torch(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
        import torch

        return (getattr(torch, torch_name)(xs[0], dim=list(a["axes"]), keepdim=bool(a["keep"])),)

    def field(ops: FieldOps, xs: Sequence[FieldArray], a: Attributes) -> tuple[FieldArray]:
        return (over_field(ops, xs[0], a["axes"], bool(a["keep"])),)

    def program(builder: Any, xs: Sequence[NamedArray], a: Attributes) -> tuple[NamedArray]:
        dims = [d for n in a["axes"] for d in xs[0].axes[n]]
        node = over_program(builder, xs[0].node, dims)
        empty: Axis = ()
        return (NamedArray(node, _kept(xs[0].axes, a["axes"], bool(a["keep"]), empty)),)

    return Operator(
        name,
        1,
        lambda types, a: (_reduced_type(name, types, a),),
        over_torch,
        field,
        program,
        (Attribute("axes", tuple), Attribute("keep", int, 0)),
        linear=linear,
        about=about,
    )


def field_mean(ops: FieldOps, x: FieldArray, axes: Sequence[int], keep: bool = False) -> FieldArray:
    """The sum over axes divided by how many elements it has."""
    count = int(np.prod([x.shape[n] for n in axes]))
    return ops.div(ops.sum(x, axes, keep), ops.constant(count))


SUM = register(
    _reduction(
        "sum", "sum", FieldOps.sum, lambda b, x, dims: b.sum(x, dims), ((0,),), "The sum over axes."
    )
)
MEAN = register(
    _reduction("mean", "mean", field_mean, lambda b, x, dims: b.mean(x, dims), ((0,),), "The mean.")
)
AMAX = register(
    _reduction(
        "amax", "amax", FieldOps.max, lambda b, x, dims: b.max(x, dims), (), "The largest element."
    )
)


def _softmax_shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    if not 0 <= a["axis"] < types[0].rank:
        raise refused("softmax", types, f"there is no axis {a['axis']}")
    return (types[0],)


def _field_softmax(ops: FieldOps, xs: Sequence[FieldArray], a: Attributes) -> tuple[FieldArray]:
    numerator = ops.exp(xs[0])
    return (ops.div(numerator, ops.sum(numerator, a["axis"], True)),)


def _program_softmax(builder: Any, xs: Sequence[NamedArray], a: Attributes) -> tuple[NamedArray]:
    node = composites.softmax(builder, xs[0].node, xs[0].axes[a["axis"]])
    return (NamedArray(node, xs[0].axes),)


_TORCH_SOFTMAX: TorchMeaning = lambda xs, a: (xs[0].softmax(a["axis"]),)  # noqa: E731
_OVER_FIELD: OverField = _field_softmax
_OVER_PROGRAM: OverProgram = _program_softmax
SOFTMAX = register(
    Operator(
        "softmax",
        1,
        _softmax_shape,
        _TORCH_SOFTMAX,
        _OVER_FIELD,
        _OVER_PROGRAM,
        (Attribute("axis", int),),
        about="exp(x) divided by its sum over an axis.",
    )
)
