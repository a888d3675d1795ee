"""Composite operators, defined by their expansion into primitive ones."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.masked_exp import exponential


def softmax(b: ProgramBuilder, x: int, dims: Sequence[str]) -> int:
    """exp(x) / sum(exp(x)), without a shift: the stabiliser chooses one (see search.stabilize)."""
    numerator = exponential(b, x)
    return b.apply("div", numerator, b.sum(numerator, dims))


def safe_softmax(b: ProgramBuilder, x: int, dims: Sequence[str]) -> int:
    """softmax with 0, not NaN, where all of a row is minus infinity: attention without a key.

    What divides by the sum is one reciprocal a row, and moves through products like any factor.
    """
    numerator = exponential(b, x)
    return b.apply("mul", numerator, b.apply("reciprocal_no_nan", b.sum(numerator, dims)))


def rms_norm(b: ProgramBuilder, x: int, dims: Sequence[str], eps: float) -> int:
    """x / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019), without gain."""
    mean_square = b.mean(b.apply("square", x), dims)
    return b.apply("div", x, b.apply("sqrt", b.apply("add", mean_square, b.const(eps))))


def layer_norm(b: ProgramBuilder, x: int, dims: Sequence[str], eps: float) -> int:
    """(x - mean) / sqrt(mean((x - mean)^2) + eps) (Ba et al. 2016), without gain and bias.

    The variance is that of the centred values: mean(x^2) - mean(x)^2 cancels in floats.
    """
    centred = b.apply("sub", x, b.mean(x, dims))
    variance = b.mean(b.apply("square", centred), dims)
    return b.apply("div", centred, b.apply("sqrt", b.apply("add", variance, b.const(eps))))


def l2_norm(b: ProgramBuilder, x: int, dims: Sequence[str], eps: float = 0.0) -> int:
    """x / sqrt(sum(x^2) + eps)."""
    total = b.apply("add", b.sum(b.apply("square", x), dims), b.const(eps))
    return b.apply("div", x, b.apply("sqrt", total))


def clamp(b: ProgramBuilder, x: int, low: float | None, high: float | None) -> int:
    """min(max(x, low), high); None leaves a side open."""
    if low is not None:
        x = b.apply("maximum", x, b.const(low))
    if high is not None:
        x = b.apply("minimum", x, b.const(high))
    return x


_SIZES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
# What codes of four bits stand for (OCP MX): a sign, two bits of an exponent, one of a significand.
E2M1 = [*_SIZES, *(-size for size in _SIZES)]


def e2m1(b: ProgramBuilder, code: int) -> int:
    """What a code of four bits stands for: of its last three bits the highest of three lines."""
    bits = b.apply("bit_and", code, b.const(7.0))
    twice = b.apply("sub", b.apply("mul", bits, b.const(2.0)), b.const(8.0))
    lines = (b.apply("mul", bits, b.const(0.5)), b.apply("sub", bits, b.const(2.0)))
    size = b.apply("maximum", b.apply("maximum", *lines), twice)
    return b.apply("where", b.apply("lt", code, b.const(8.0)), size, b.apply("neg", size))
