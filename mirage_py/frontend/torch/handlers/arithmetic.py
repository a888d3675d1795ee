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
    """x / y rounded, of positions only."""
    return t.apply("div", x, y) if rounding_mode is None else t.apply("floordiv", x, y)


@handles("floor_divide.default", "floor_divide.Scalar")
def floor_divide(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """The quotient of positions."""
    return t.apply("floordiv", x, y)


@handles("remainder.Tensor", "remainder.Scalar", "fmod.Tensor", "fmod.Scalar")
def remainder(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """The remainder of positions."""
    return t.apply("mod", x, y)


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def pow_(t: Lowering, x: Operand, y: Operand) -> NamedArray:
    """x to the power y; a constant exponent becomes products and roots where that says the same."""
    if isinstance(x, NamedArray) and not isinstance(y, NamedArray):
        return NamedArray(t.builder.power(x.node, float(y)), x.axes)
    return t.apply("pow", x, y)


@handles("neg.default")
def neg(t: Lowering, x: Operand) -> NamedArray:
    """-x."""
    return t.apply("neg", x)


@handles("reciprocal.default")
def reciprocal(t: Lowering, x: Operand) -> NamedArray:
    """1 / x."""
    return t.apply("div", 1.0, x)


@handles("clamp.default", "clamp.Tensor", "clip.default", "clip.Tensor", "hardtanh.default")
def clamp(
    t: Lowering, x: Operand, low: Operand | None = None, high: Operand | None = None
) -> NamedArray:
    """min(max(x, low), high); None and infinity leave a side open."""
    if low not in (None, -math.inf):
        x = t.apply("maximum", x, low)
    if high not in (None, math.inf):
        x = t.apply("minimum", x, high)
    return t.array(x)


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
