"""Arithmetic between tensors and numbers."""

from __future__ import annotations

import math

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering, Operand
from mirage_py.ugraph.building.views import NamedArray


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
    whole = t.apply("round", t.apply("div", t.apply("sub", x, remainder(t, x, y)), y))
    return t.apply("where", t.apply("eq", y, 0.0), t.apply("div", x, y), whole)


@handles("remainder.Tensor", "remainder.Scalar")
def remainder(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """What is left of x / y rounded down: of the sign of y."""
    if t.positions(x, y):
        return t.apply("mod", x, y)
    left = t.apply("fmod", x, y)
    differs = t.apply("ne", t.apply("lt", left, 0.0), t.apply("lt", y, 0.0))
    moved = t.apply("and", t.apply("ne", left, 0.0), differs)
    return t.apply("where", moved, t.apply("add", left, y), left)


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
