"""Elementwise functions of one tensor."""

from __future__ import annotations

from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lowering import Lowering
from mirage_py.ugraph.masked_exp import exponential
from mirage_py.ugraph.views import NamedArray


@handles("exp.default")
def exp(t: Lowering, x: NamedArray) -> NamedArray:
    """e to the x; where a mask made x minus infinity, the mask becomes a factor."""
    return NamedArray(exponential(t.builder, x.node), x.axes)


@handles("relu.default")
def relu(t: Lowering, x: NamedArray) -> NamedArray:
    """max(x, 0)."""
    return t.apply("relu", x)


@handles("sigmoid.default")
def sigmoid(t: Lowering, x: NamedArray) -> NamedArray:
    """1 / (1 + exp(-x))."""
    return t.apply("sigmoid", x)


@handles("silu.default")
def silu(t: Lowering, x: NamedArray) -> NamedArray:
    """x * sigmoid(x)."""
    return t.apply("silu", x)


@handles("tanh.default")
def tanh(t: Lowering, x: NamedArray) -> NamedArray:
    """The hyperbolic tangent."""
    return t.apply("tanh", x)


@handles("gelu.default")
def gelu(t: Lowering, x: NamedArray, approximate: str = "none") -> NamedArray:
    """x times the normal distribution function, exact or by its tanh form."""
    return t.apply("gelu" if approximate == "none" else "gelu_tanh", x)


@handles("erf.default")
def erf(t: Lowering, x: NamedArray) -> NamedArray:
    """The error function."""
    return t.apply("erf", x)
