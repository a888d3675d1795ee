"""Elementwise functions of one tensor."""

from __future__ import annotations

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building.masked_exp import exponential, split
from mirage_py.ugraph.building.views import NamedArray

# From here on softplus(x) and x are the same float32.
_SAME_ABOVE = 20.0


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
