"""Arithmetic between tensors and numbers."""

from __future__ import annotations

import math

import torch

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering, Operand
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.checks.kept_integers import kept_types

_LARGEST_POWER = 1 << 24


@handles("add.Tensor", "add.Scalar")
def add(t: Lowering, x: Operand, y: Operand, alpha: float = 1) -> NamedArray:
    """x + alpha * y."""
    return t.apply("add", x, scaled(t, y, alpha))


@handles("sub.Tensor", "sub.Scalar")
def sub(t: Lowering, x: Operand, y: Operand, alpha: float = 1) -> NamedArray:
    """x - alpha * y."""
    return t.apply("sub", x, scaled(t, y, alpha))


@handles("rsub.Tensor", "rsub.Scalar")
def rsub(t: Lowering, x: Operand, y: Operand, alpha: float = 1) -> NamedArray:
    """y - alpha * x."""
    return t.apply("sub", y, scaled(t, x, alpha))


@handles("mul.Tensor", "mul.Scalar")
def mul(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x * y."""
    return t.apply("mul", x, y)


@handles("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x / y."""
    return t.apply("div", x, y)


@handles("div.Tensor_mode", "div.Scalar_mode")
def div_mode(t: Lowering, x: Operand, y: Operand, rounding_mode: str | None) -> NamedArray:
    """x / y, rounded down, towards 0, or not at all."""
    if rounding_mode is None:
        return t.apply("div", x, y)
    if rounding_mode == "floor" or t.positions(x, y):
        return floor_divide(t, x, y)
    if not t.result_dtype().is_floating_point:  # a quotient may be rounded to a whole number
        whole = t.apply("sub", x, t.apply("fmod", x, y))
        return t.apply("round", t.apply("div", whole, y))
    return t.apply("trunc", t.apply("div", x, y))


@handles("floor_divide.default", "floor_divide.Scalar")
def floor_divide(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x / y rounded down: by what is left after the remainder, as a quotient may round up."""
    if t.positions(x, y):
        return t.apply("floordiv", x, y)
    bits = _bits_of(t, x, y)
    if bits is not None:
        return t.apply("shift_right", x, bits)
    whole = t.apply("round", t.apply("div", t.apply("sub", x, remainder(t, x, y)), y))
    return t.apply("where", t.apply("eq", y, 0.0), t.apply("div", x, y), whole)


@handles("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """What is left of x / y rounded down: of the sign of y."""
    if t.positions(x, y):
        return t.apply("mod", x, y)
    if _bits_of(t, x, y) is not None:
        assert isinstance(x, NamedArray)
        assert isinstance(y, int)
        return t.apply("bit_and", NamedArray(_low_bits(t, x.node, y - 1), x.axes), y - 1)
    left = t.apply("fmod", x, y)
    differs = t.apply("ne", t.apply("lt", left, 0.0), t.apply("lt", y, 0.0))
    moved = t.apply("and", t.apply("ne", left, 0.0), differs)
    return t.apply("where", moved, t.apply("add", left, y), left)


def _bits_of(t: Lowering, x: Operand, y: Operand) -> int | None:
    """Which power of two y is, where x are integers of any size: their low bits are the remainder,
    and the others the quotient, in all of which a kernel has no float.
    """
    if not isinstance(x, NamedArray) or not isinstance(y, int) or not 1 < y <= _LARGEST_POWER:
        return None
    if t.result_dtype() not in (torch.int64, torch.int32) or y & (y - 1):
        return None
    return y.bit_length() - 1 if t.whole_bounds(x) is None else None


def _low_bits(t: Lowering, number: int, mask: int) -> int:
    """Integers whose bits under a mask are those of a node, which sums have of their summands'."""
    b, kept = t.builder, kept_types(t.builder.nodes, t.builder.inputs)

    def low(n: int) -> int:
        node = b.nodes[n]
        if kept[n] is not None and node.op != "const":
            return b.apply("bit_and", n, b.const(float(mask)))
        return b.apply(node.op, *map(low, node.args)) if node.op in ("add", "sub") else n

    return number if kept[number] is not None else low(number)


@handles("fmod.Tensor", "fmod.Scalar")
def fmod(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """What is left of x / y rounded towards 0: of the sign of x."""
    return t.apply("mod" if t.positions(x, y) else "fmod", x, y)


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def pow_(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x to the power y; a constant exponent becomes products and roots where that says the same."""
    if isinstance(x, NamedArray) and not isinstance(y, NamedArray):
        return NamedArray(t.builder.power(x.node, float(y)), x.axes)
    return t.apply("pow", x, y)


@handles("ldexp.Tensor")
def ldexp(t: Lowering, x: Operand, n: Operand) -> NamedArray:
    """x times 2 to the power of whole numbers."""
    return t.apply("mul", x, t.apply("exp2", n))


@handles("neg.default")
def neg(t: Lowering, x: Operand) -> NamedArray:
    """-x."""
    return t.apply("neg", x)


@handles("reciprocal.default")
def reciprocal(t: Lowering, x: Operand) -> NamedArray:
    """1 / x."""
    return t.apply("div", 1.0, x)


@handles("fmax.default")
def fmax(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """The larger of two; of a number and NaN the number."""
    return _of_numbers(t, "maximum", x, y)


@handles("fmin.default")
def fmin(t: Lowering, x: NamedArray, y: NamedArray) -> NamedArray:
    """The smaller of two; of a number and NaN the number."""
    return _of_numbers(t, "minimum", x, y)


def _of_numbers(t: Lowering, op: str, x: NamedArray, y: NamedArray) -> NamedArray:
    both = t.apply("where", t.apply("isnan", y), x, t.apply(op, x, y))
    return t.apply("where", t.apply("isnan", x), y, both)


@handles("clamp.default", "clamp.Tensor", "clip.default", "clip.Tensor")
def clamp(
    t: Lowering, x: Operand, low: Operand | None = None, high: Operand | None = None
) -> NamedArray:
    """min(max(x, low), high); None and infinity leave a side open."""
    if low not in (None, -math.inf):
        x = t.apply("maximum", x, low)
    if high not in (None, math.inf):
        x = t.apply("minimum", x, high)
    return t.array(x)


@handles("hardtanh.default")
def hardtanh(t: Lowering, x: Operand, min_val: Operand = -1, max_val: Operand = 1) -> NamedArray:
    """min(max(x, min_val), max_val)."""
    return clamp(t, x, min_val, max_val)


@handles("clamp_min.default", "clamp_min.Tensor")
def clamp_min(t: Lowering, x: Operand, low: Operand) -> NamedArray:
    """max(x, low)."""
    return clamp(t, x, low)


@handles("clamp_max.default", "clamp_max.Tensor")
def clamp_max(t: Lowering, x: Operand, high: Operand) -> NamedArray:
    """min(x, high)."""
    return clamp(t, x, None, high)


def scaled(t: Lowering, x: Operand, factor: float) -> Operand:
    """factor * x."""
    if factor == 1:
        return x
    return t.apply("mul", x, factor) if isinstance(x, NamedArray) else x * factor
