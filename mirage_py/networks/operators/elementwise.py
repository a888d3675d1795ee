"""Elementwise operators of networks: the rows of µGraphs, broadcast by position as in torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
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
from mirage_py.ugraph.ir.dtypes import dtype
from mirage_py.ugraph.operators import operator as ugraph_operator

# Names are those of mirage_py.ugraph.operators.elementwise.
_UNARY = (
    "neg", "exp", "log", "sqrt", "rsqrt", "square", "abs", "erf", "relu", "sigmoid", "silu", "tanh",
    "gelu", "gelu_tanh", "softplus", "mish", "hardswish",
)  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
# Groups of operands in which an operator is linear.
_LINEAR: dict[str, tuple[tuple[int, ...], ...]] = {
    "neg": ((0,),),
    "add": ((0, 1),),
    "sub": ((0, 1),),
    "mul": ((0,), (1,)),
}


def broadcast_type(name: str, operands: Sequence[TensorType]) -> TensorType:
    """The common type of operands that broadcast; element types have to agree."""
    first = operands[0]
    if any(t.dtype != first.dtype for t in operands):
        raise refused(name, operands, "element types differ; cast one of them")
    rank = max(t.rank for t in operands)
    shape: list[int] = []
    for axis in range(rank):
        extents = [t.shape[axis - rank + t.rank] for t in operands if axis - rank + t.rank >= 0]
        extent = max(extents)
        if any(n not in (1, extent) for n in extents):
            raise refused(name, operands, f"axis {axis} has extents {extents}")
        shape.append(extent)
    return first.of_shape(tuple(shape))


@lru_cache
def _torch_function(name: str) -> Any:
    """The operator's text in torch as a function."""
    import torch

    row = ugraph_operator(name)
    operands = [f"x{n}" for n in range(row.arity)]
    text = f"lambda {', '.join(operands)}: {row.torch.format(*operands)}"
    return eval(text, {"torch": torch, "F": torch.nn.functional})  # noqa: S307 - a row's own text


def _elementwise(name: str) -> Operator:
    row = ugraph_operator(name)
    meaning = row.over_field
    assert meaning is not None

    def shapes(operands: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType]:
        del attributes
        if not operands[0].dtype.is_float:
            raise refused(name, operands, "its operands are no floating-point numbers")
        return (broadcast_type(name, operands),)

    def over_torch(tensors: Sequence[Any], attributes: Attributes) -> tuple[Any]:
        del attributes
        return (_torch_function(name)(*tensors),)

    def over_field(
        ops: FieldOps, arrays: Sequence[FieldArray], attributes: Attributes
    ) -> tuple[FieldArray]:
        del attributes
        return (meaning(ops, *arrays),)

    def over_program(
        builder: ProgramBuilder, arrays: Sequence[NamedArray], attributes: Attributes
    ) -> tuple[NamedArray]:
        del attributes
        return (applied(builder, name, arrays),)

    return Operator(
        name,
        row.arity,
        shapes,
        over_torch,
        over_field,
        over_program,
        linear=_LINEAR.get(name, ()),
        about=row.about or row.torch.format("x", "y"),
    )


def applied(builder: ProgramBuilder, op: str, arrays: Sequence[NamedArray]) -> NamedArray:
    """An elementwise operator of µGraphs on arrays that broadcast."""
    aligned = views.broadcast(builder, arrays) if len(arrays) > 1 else list(arrays)
    return NamedArray(builder.apply(op, *(a.node for a in aligned)), aligned[0].axes)


ELEMENTWISE = tuple(register(_elementwise(name)) for name in (*_UNARY, *_BINARY))


def _scaled(builder: ProgramBuilder, array: NamedArray, factor: float) -> NamedArray:
    return NamedArray(builder.apply("mul", array.node, builder.const(factor)), array.axes)


def _shifted(builder: ProgramBuilder, array: NamedArray, term: float) -> NamedArray:
    return NamedArray(builder.apply("add", array.node, builder.const(term)), array.axes)


def _cast(builder: ProgramBuilder, array: NamedArray, to: str) -> NamedArray:
    return NamedArray(builder.cast(array.node, dtype(to)), array.axes)


def _to_torch(x: Any, name: str) -> Any:
    import torch

    return x.to(getattr(torch, dtype(name).torch_name))


SCALE = register(
    Operator(
        "scale",
        1,
        lambda types, _: (types[0],),
        lambda xs, a: (xs[0] * a["factor"],),
        lambda ops, xs, a: (ops.mul(xs[0], ops.constant(a["factor"])),),
        lambda b, xs, a: (_scaled(b, xs[0], a["factor"]),),
        (Attribute("factor", float),),
        linear=((0,),),
        about="x times a number.",
    )
)
SHIFT = register(
    Operator(
        "shift",
        1,
        lambda types, _: (types[0],),
        lambda xs, a: (xs[0] + a["term"],),
        lambda ops, xs, a: (ops.add(xs[0], ops.constant(a["term"])),),
        lambda b, xs, a: (_shifted(b, xs[0], a["term"]),),
        (Attribute("term", float),),
        about="x plus a number.",
    )
)
CAST = register(
    Operator(
        "cast",
        1,
        lambda types, a: (TensorType(types[0].shape, dtype(a["to"])),),
        lambda xs, a: (_to_torch(xs[0], a["to"]),),
        lambda ops, xs, a: (ops.cast(xs[0], dtype(a["to"]).name),),
        lambda b, xs, a: (_cast(b, xs[0], a["to"]),),
        (Attribute("to", str),),
        about="x rounded to an element type.",
    )
)
