"""Batch norm with known statistics, as in inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirage_py.networks.operators.elementwise import applied
from mirage_py.networks.operators.operator import (
    Attribute,
    Attributes,
    Operator,
    refused,
    register,
)
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.field import FieldArray, FieldOps


def _shape(types: Sequence[TensorType], a: Attributes) -> tuple[TensorType]:
    x = types[0]
    if x.rank < 2 or any(t.shape != (x.shape[1],) for t in types[1:]):
        raise refused("batch_norm", types, "the others have one number for each channel, axis 1")
    if a["eps"] <= 0:
        raise refused("batch_norm", types, "eps is positive")
    return (x,)


def _over_torch(xs: Sequence[Any], a: Attributes) -> tuple[Any]:
    import torch

    x, gain, bias, mean, variance = xs
    normed = torch.nn.functional.batch_norm(x, mean, variance, gain, bias, False, 0.0, a["eps"])
    return (normed,)


def _over_field(ops: FieldOps, xs: Sequence[FieldArray], a: Attributes) -> tuple[FieldArray]:
    x = xs[0]
    wide = (-1, *(1,) * (x.ndim - 2))
    spread = ops.sqrt(ops.add(xs[4], ops.constant(a["eps"]))).reshape(wide)
    gain, bias, mean = (array.reshape(wide) for array in xs[1:4])
    return (ops.add(ops.mul(ops.div(ops.sub(x, mean), spread), gain), bias),)


def _over_program(
    builder: ProgramBuilder, xs: Sequence[NamedArray], a: Attributes
) -> tuple[NamedArray]:
    rank = len(xs[0].axes)

    def by_channel(array: NamedArray) -> NamedArray:
        return NamedArray(array.node, (*array.axes, *((),) * (rank - 2)))

    raised = builder.apply("add", xs[4].node, builder.const(a["eps"]))
    spread = by_channel(NamedArray(builder.apply("sqrt", raised), xs[4].axes))
    gain, bias, mean = map(by_channel, xs[1:4])
    result = applied(builder, "div", [applied(builder, "sub", [xs[0], mean]), spread])
    return (applied(builder, "add", [applied(builder, "mul", [result, gain]), bias]),)


BATCH_NORM = register(
    Operator(
        "batch_norm",
        5,
        _shape,
        _over_torch,
        _over_field,
        _over_program,
        (Attribute("eps", float, 1e-5),),
        about="(x - mean) / sqrt(variance + eps) * gain + bias by channel; operands in the order "
        "x, gain, bias, mean, variance.",
    )
)
