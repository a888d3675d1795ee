"""Elementwise functions: the ATen operators that are one operator of a program, and others."""

from __future__ import annotations

import math

import torch

from mirage_py.frontend.torch.handlers.registry import Handler, handles
from mirage_py.frontend.torch.lower.lowering import Lowering, Operand
from mirage_py.ugraph.building.masked_exp import exponential, split
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.operators import Operator, all_operators

# From here on softplus(x) and x are the same float32.
_SAME_ABOVE = 20.0


def _handler(row: Operator) -> Handler:
    def handler(t: Lowering, *operands: Operand) -> NamedArray:
        return t.apply(row.name, *operands)

    handler.__doc__ = row.about
    return handler


for _row in all_operators():
    handles(*_row.aten)(_handler(_row))


@handles("exp.default")
def exp(t: Lowering, x: NamedArray) -> NamedArray:
    """e to the x; where a mask made x minus infinity, the mask becomes a factor."""
    return NamedArray(exponential(t.builder, x.node), x.axes)


@handles("expm1.default")
def expm1(t: Lowering, x: NamedArray) -> NamedArray:
    """exp(x) - 1; where a mask made x minus infinity, the mask becomes a factor."""
    if split(t.builder, x.node).is_masked:
        return t.apply("sub", exp(t, x), 1.0)
    return t.apply("expm1", x)


@handles("gelu.default")
def gelu(t: Lowering, x: NamedArray, approximate: str = "none") -> NamedArray:
    """x times the normal distribution function, exact or by its tanh form."""
    return t.apply("gelu" if approximate == "none" else "gelu_tanh", x)


@handles("leaky_relu.default")
def leaky_relu(t: Lowering, x: NamedArray, negative_slope: float = 0.01) -> NamedArray:
    """x above 0, a fraction of it below."""
    return t.apply("where", t.apply("gt", x, 0.0), x, t.apply("mul", x, negative_slope))


@handles("softplus.default")
def softplus(t: Lowering, x: NamedArray, beta: float = 1.0, threshold: float = 20.0) -> NamedArray:
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold."""
    if beta == 0:
        raise t.refuse("softplus with beta = 0 divides by it", repair="use another beta")
    scaled = x if beta == 1 else t.apply("mul", x, beta)
    soft = t.apply("softplus", scaled)
    soft = soft if beta == 1 else t.apply("div", soft, beta)
    if threshold >= _SAME_ABOVE:
        return soft
    return t.apply("where", t.apply("gt", scaled, threshold), x, soft)


@handles("elu.default")
def elu(
    t: Lowering, x: NamedArray, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> NamedArray:
    """scale * x above 0, alpha * scale * (exp(input_scale * x) - 1) below; selu and celu too."""
    # The branch that is not taken is computed as well: above 0 its exponential could overflow.
    below = t.apply("minimum", t.apply("mul", x, input_scale), 0.0)
    grown = t.apply("mul", expm1(t, below), alpha * scale)
    return t.apply("where", t.apply("gt", x, 0.0), t.apply("mul", x, scale), grown)


@handles("sign.default", "sgn.default")
def sign(t: Lowering, x: NamedArray) -> NamedArray:
    """1, 0 or -1; of NaN 0, as torch has it."""
    return t.apply("sub", t.apply("gt", x, 0.0), t.apply("lt", x, 0.0))


@handles("frac.default")
def frac(t: Lowering, x: NamedArray) -> NamedArray:
    """x without its whole part."""
    return t.apply("sub", x, t.apply("trunc", x))


@handles("round.decimals")
def round_to(t: Lowering, x: NamedArray, decimals: int = 0) -> NamedArray:
    """x rounded to so many digits behind the point, or in front of it."""
    power = 10.0 ** abs(decimals)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return t.apply(back, t.apply("round", t.apply(there, x, power)), power)


@handles("tan.default")
def tan(t: Lowering, x: NamedArray) -> NamedArray:
    """sin(x) / cos(x)."""
    return t.apply("div", t.apply("sin", x), t.apply("cos", x))


@handles("sinh.default")
def sinh(t: Lowering, x: NamedArray) -> NamedArray:
    """(exp(x) - exp(-x)) / 2, by exp(x) - 1, which does not cancel near 0."""
    grown, fallen = t.apply("expm1", x), t.apply("expm1", t.apply("neg", x))
    return t.apply("mul", t.apply("sub", grown, fallen), 0.5)


@handles("cosh.default")
def cosh(t: Lowering, x: NamedArray) -> NamedArray:
    """(exp(x) + exp(-x)) / 2."""
    both = t.apply("add", t.apply("exp", x), t.apply("exp", t.apply("neg", x)))
    return t.apply("mul", both, 0.5)


@handles("asinh.default")
def asinh(t: Lowering, x: NamedArray) -> NamedArray:
    """log(x + sqrt(x^2 + 1)), of |x| and by log(1 + y), which do not cancel."""
    size = t.apply("abs", x)
    # From here on the ratio is 1; the square of more would overflow.
    low = t.apply("minimum", size, 1e18)
    root = t.apply("sqrt", t.apply("add", t.apply("square", low), 1.0))
    ratio = t.apply("div", low, t.apply("add", root, 1.0))
    grown = t.apply("log1p", t.apply("add", size, t.apply("mul", size, ratio)))
    return t.apply("where", t.apply("lt", x, 0.0), t.apply("neg", grown), grown)


@handles("acosh.default")
def acosh(t: Lowering, x: NamedArray) -> NamedArray:
    """log(x + sqrt(x^2 - 1)), by log(1 + y) of y = (x - 1) + sqrt((x - 1) (x + 1))."""
    over = t.apply("sub", x, 1.0)
    root = t.apply("sqrt", t.apply("mul", over, t.apply("add", x, 1.0)))
    return t.apply("log1p", t.apply("add", over, root))


@handles("atanh.default")
def atanh(t: Lowering, x: NamedArray) -> NamedArray:
    """(log(1 + x) - log(1 - x)) / 2: a quotient of both, rounded to 16 bits, is far off near -1."""
    above, below = t.apply("log1p", x), t.apply("log1p", t.apply("neg", x))
    return t.apply("mul", t.apply("sub", above, below), 0.5)


@handles("asin.default")
def asin(t: Lowering, x: NamedArray) -> NamedArray:
    """2 atan(x / (1 + sqrt((1 - x) (1 + x))))."""
    root = t.apply("sqrt", t.apply("mul", t.apply("sub", 1.0, x), t.apply("add", 1.0, x)))
    half = t.apply("atan", t.apply("div", x, t.apply("add", 1.0, root)))
    return t.apply("mul", half, 2.0)


@handles("acos.default")
def acos(t: Lowering, x: NamedArray) -> NamedArray:
    """pi / 2 - asin(x)."""
    return t.apply("sub", math.pi / 2, asin(t, x))


@handles("isfinite.default")
def isfinite(t: Lowering, x: NamedArray) -> NamedArray:
    """Whether x is neither infinite nor NaN."""
    return t.apply("not", t.apply("or", t.apply("isnan", x), t.apply("isinf", x)))


@handles("nan_to_num.default")
def nan_to_num(
    t: Lowering,
    x: NamedArray,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> NamedArray:
    """x with numbers for NaN and the infinities: 0 and the last ones of its type."""
    end = torch.finfo(t.result_dtype()).max
    below = t.apply("lt", x, 0.0)
    ends = t.apply(
        "where", below, -end if neginf is None else neginf, end if posinf is None else posinf
    )
    finite = t.apply("where", t.apply("isinf", x), ends, x)
    return t.apply("where", t.apply("isnan", x), nan or 0.0, finite)
