"""Products: matmul of matrices, or of stacks of them that broadcast; bmm of two equal stacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirage_py.networks.operators.operator import Attributes, Operator, refused, register
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.field import FieldArray, FieldOps


def _matmul_shape(operands: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType]:
    del attributes
    a, b = operands
    if a.rank < 2 or b.rank < 2:
        raise refused("matmul", operands, "each operand needs rows and columns")
    return (_product_type("matmul", a, b),)


def _bmm_shape(operands: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType]:
    del attributes
    a, b = operands
    if a.rank != 3 or b.rank != 3:
        raise refused("bmm", operands, "both operands are stacks of matrices")
    if a.shape[0] != b.shape[0]:
        raise refused("bmm", operands, f"the stacks have {a.shape[0]} and {b.shape[0]} matrices")
    return (_product_type("bmm", a, b),)


def _product_type(name: str, a: TensorType, b: TensorType) -> TensorType:
    if a.dtype != b.dtype:
        raise refused(name, (a, b), "element types differ; cast one of them")
    if a.shape[-1] != b.shape[-2]:
        raise refused(name, (a, b), f"{a.shape[-1]} columns meet {b.shape[-2]} rows")
    rank = max(a.rank, b.rank)
    stacks = [(1,) * (rank - t.rank) + t.shape[:-2] for t in (a, b)]
    stack: list[int] = []
    for one, other in zip(*stacks, strict=True):
        if one != other and 1 not in (one, other):
            raise refused(name, (a, b), f"stacks of {one} and {other} do not broadcast")
        stack.append(max(one, other))
    return a.of_shape((*stack, a.shape[-2], b.shape[-1]))


def _over_field(
    ops: FieldOps, arrays: Sequence[FieldArray], attributes: Attributes
) -> tuple[FieldArray]:
    del attributes
    a, b = arrays
    left = a.reshape((*a.shape, 1))
    right = b.reshape((*b.shape[:-2], 1, *b.shape[-2:]))
    return (ops.contract(left, right, -2),)


def _over_program(
    builder: ProgramBuilder, arrays: Sequence[NamedArray], attributes: Attributes
) -> tuple[NamedArray]:
    """Both over [..., rows, shared, columns], multiplied and summed over the shared axis."""
    del attributes
    a, b = arrays
    left = NamedArray(a.node, (*a.axes, ()))
    right = NamedArray(b.node, (*b.axes[:-2], (), *b.axes[-2:]))
    one, other = views.broadcast(builder, [left, right])
    product = builder.apply("mul", one.node, other.node)
    total = builder.sum(product, one.axes[-2])
    return (NamedArray(total, (*one.axes[:-2], one.axes[-1])),)


def _over_torch(tensors: Sequence[Any], attributes: Attributes) -> tuple[Any]:
    import torch

    del attributes
    return (torch.matmul(*tensors),)


LINEAR = ((0,), (1,))
MATMUL = register(
    Operator(
        "matmul",
        2,
        _matmul_shape,
        _over_torch,
        _over_field,
        _over_program,
        linear=LINEAR,
        about="The product of the last two axes; those before broadcast.",
    )
)
BMM = register(
    Operator(
        "bmm",
        2,
        _bmm_shape,
        _over_torch,
        _over_field,
        _over_program,
        linear=LINEAR,
        about="The products of two equal stacks of matrices.",
    )
)
