"""Comparisons, logic, selection, and the triangles that masks are made of."""

from __future__ import annotations

import torch

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.indices import mask_of
from mirage_py.frontend.torch.lower.lowering import Lowering, Operand
from mirage_py.frontend.torch.lower.refusals import INTEGER_BITS
from mirage_py.ugraph.building.named_array import NamedArray, flat_index
from mirage_py.ugraph.ir.predicates import TRUE

# Integers of so many bits are kept as numbers of float32, which have no upper bits to lose.
_WORD_BITS = 32


@handles("lt.Tensor", "lt.Scalar")
def lt(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x < y."""
    return t.apply("lt", x, y)


@handles("le.Tensor", "le.Scalar")
def le(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x <= y."""
    return t.apply("le", x, y)


@handles("gt.Tensor", "gt.Scalar")
def gt(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x > y."""
    return t.apply("gt", x, y)


@handles("ge.Tensor", "ge.Scalar")
def ge(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x >= y."""
    return t.apply("ge", x, y)


@handles("eq.Tensor", "eq.Scalar")
def eq(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x == y."""
    return t.apply("eq", x, y)


@handles("ne.Tensor", "ne.Scalar")
def ne(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x != y."""
    return t.apply("ne", x, y)


@handles("logical_not.default")
def logical_not(t: Lowering, x: NamedArray) -> NamedArray:
    """Not x."""
    return t.apply("not", truth(t, x, 0))


@handles("logical_and.default")
def logical_and(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """x and y."""
    return t.apply("and", truth(t, x, 0), truth(t, y, 1))


@handles("logical_or.default")
def logical_or(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """x or y."""
    return t.apply("or", truth(t, x, 0), truth(t, y, 1))


@handles("logical_xor.default")
def logical_xor(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """Exactly one of x and y."""
    x, y = truth(t, x, 0), truth(t, y, 1)
    return t.apply("and", t.apply("or", x, y), t.apply("not", t.apply("and", x, y)))


@handles("bitwise_not.default")
def bitwise_not(t: Lowering, x: NamedArray) -> NamedArray:
    """Not x, of truth values or whole numbers."""
    kind = t.result_dtype()
    if kind is not torch.bool:
        return t.apply("sub", float(torch.iinfo(kind).max if kind is torch.uint8 else -1), x)
    return logical_not(t, x)


@handles("bitwise_and.Tensor", "__and__.Tensor")
def bitwise_and(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """x & y, of truth values or whole numbers."""
    if t.result_dtype() is not torch.bool:
        return t.apply("bit_and", x, y)
    return logical_and(t, x, y)


@handles("bitwise_and.Scalar", "__and__.Scalar")
def bitwise_and_number(t: Lowering, x: NamedArray, y: int) -> NamedArray:
    """x & y, of whole numbers."""
    return t.apply("bit_and", x, y)


@handles(
    "__rshift__.Scalar",
    "__rshift__.Tensor",
    "bitwise_right_shift.Tensor",
    "bitwise_right_shift.Tensor_Scalar",
)
def shift_right(t: Lowering, x: NamedArray, y: Operand) -> NamedArray:
    """x >> y, of whole numbers."""
    if isinstance(y, NamedArray) and t.result_dtype() is torch.int64:
        known = t.whole_bounds(y)
        if known is None or known[1] >= _WORD_BITS:
            # Of a word of 32 bits there is nothing left but the sign, as in torch.
            y = t.apply("minimum", y, _WORD_BITS - 1)
    return t.apply("shift_right", x, y)


@handles("__lshift__.Scalar", "bitwise_left_shift.Tensor_Scalar")
def shift_left(t: Lowering, x: NamedArray, y: int) -> NamedArray:
    """x << y: of integers of 8 and 16 bits the upper bits are lost, others have to be small."""
    kind = torch.iinfo(t.result_dtype())
    if not 0 <= y < kind.bits:
        raise t.refuse(
            f"torch operator {t.node_in_hand.target} is not supported",
            why=INTEGER_BITS.why,
            repair=INTEGER_BITS.repair,
        )
    if kind.bits >= _WORD_BITS:
        return t.apply("mul", x, 1 << y)
    top = 1 << kind.bits - y - 1
    if kind.min == 0:
        return t.apply("mul", t.apply("bit_and", x, 2 * top - 1), 1 << y)
    # The highest bit that is left is the sign.
    low = t.apply("sub", t.apply("bit_and", x, top - 1), t.apply("bit_and", x, top))
    return t.apply("mul", low, 1 << y)


@handles("bitwise_or.Tensor", "__or__.Tensor")
def bitwise_or(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """x | y, of truth values or whole numbers."""
    if t.result_dtype() is not torch.bool:
        return t.apply("bit_or", x, y)
    return logical_or(t, x, y)


@handles("bitwise_or.Scalar", "__or__.Scalar")
def bitwise_or_number(t: Lowering, x: NamedArray, y: int) -> NamedArray:
    """x | y, of whole numbers."""
    return t.apply("bit_or", x, y)


@handles("bitwise_xor.Tensor", "__xor__.Tensor")
def bitwise_xor(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """x ^ y, of truth values or whole numbers."""
    if t.result_dtype() is not torch.bool:
        return t.apply("bit_xor", x, y)
    return logical_xor(t, x, y)


@handles("bitwise_xor.Scalar", "__xor__.Scalar")
def bitwise_xor_number(t: Lowering, x: NamedArray, y: int) -> NamedArray:
    """x ^ y, of whole numbers."""
    return t.apply("bit_xor", x, y)


@handles("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(t: Lowering, condition: NamedArray, x: Operand, y: Operand) -> NamedArray:
    """x where the condition holds, else y."""
    return t.apply("where", condition, x, y)


@handles("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(t: Lowering, x: NamedArray, mask: NamedArray, value: Operand) -> NamedArray:
    """``value`` where the mask holds, else x."""
    return t.apply("where", t.apply("not", mask), x, value)


@handles("tril.default")
def tril(t: Lowering, x: NamedArray, diagonal: int = 0) -> NamedArray:
    """x on and below a diagonal of the last two axes, 0 above."""
    kept = t.apply("le", position(t, x, -1), t.apply("add", position(t, x, -2), diagonal))
    return _kept_or_zero(t, kept, x)


@handles("triu.default")
def triu(t: Lowering, x: NamedArray, diagonal: int = 0) -> NamedArray:
    """x on and above a diagonal of the last two axes, 0 below."""
    kept = t.apply("ge", position(t, x, -1), t.apply("add", position(t, x, -2), diagonal))
    return _kept_or_zero(t, kept, x)


def position(t: Lowering, x: NamedArray, axis: int) -> NamedArray:
    """For every element its position along an axis."""
    expression = flat_index(t.builder, x.axes[axis])
    axes = tuple(a if n == axis % len(x.axes) else () for n, a in enumerate(x.axes))
    return NamedArray(t.builder.index(expression), axes)


def _kept_or_zero(t: Lowering, kept: NamedArray, x: NamedArray) -> NamedArray:
    # A triangle of ones is the mask itself, and a triangle of a mask both masks at once.
    if mask_of(t.builder, x.node) is not None:
        return t.apply("and", kept, x)
    return t.apply("where", kept, x, 0.0)


def truth(t: Lowering, x: NamedArray, place: int) -> NamedArray:
    """An operand as 0 or 1."""
    known = mask_of(t.builder, x.node)
    if known == TRUE or known is not None or t.torch_dtype(place) is torch.bool:
        return x
    return t.apply("ne", x, 0.0)
