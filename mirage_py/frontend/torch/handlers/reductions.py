"""Sums, means, maxima and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mirage_py.frontend.torch.handlers.casts import cast
from mirage_py.frontend.torch.handlers.masks import position, truth
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.handlers.shapes import flatten
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import masked_exp, views
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.node import REDUCING

# Below every number, yet finite: what a masked maximum compares with.
LOWEST = torch.finfo(torch.float32).min

# A position in a longer row is sought in blocks, and then among these: each element is read once,
# and all blocks at a time.
_SHORT_ROW = 8192
_SHORTEST_BLOCK, _LONGEST_BLOCK = 64, 1024

Axes = Sequence[int] | int | None


@handles("sum.default", "sum.dim_IntList")
def sum_(
    t: Lowering,
    x: NamedArray,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> NamedArray:
    """The sum over axes; all of them by default."""
    x = cast(t, x, dtype)
    return NamedArray(t.builder.sum(x.node, dims_of(x, dim)), without(x, dim, keepdim))


@handles("mean.default", "mean.dim")
def mean(
    t: Lowering,
    x: NamedArray,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> NamedArray:
    """The mean over axes."""
    x = cast(t, x, dtype)
    return NamedArray(t.builder.mean(x.node, dims_of(x, dim)), without(x, dim, keepdim))


@handles("amax.default")
def amax(t: Lowering, x: NamedArray, dim: Axes = (), keepdim: bool = False) -> NamedArray:
    """The maximum over axes."""
    return NamedArray(_maximum(t, x, dims_of(x, dim)), without(x, dim, keepdim))


@handles("amin.default")
def amin(t: Lowering, x: NamedArray, dim: Axes = (), keepdim: bool = False) -> NamedArray:
    """The minimum over axes."""
    return t.apply("neg", amax(t, t.apply("neg", x), dim, keepdim))


@handles("max.default")
def max_all(t: Lowering, x: NamedArray) -> NamedArray:
    """The largest element."""
    return amax(t, x)


@handles("min.default")
def min_all(t: Lowering, x: NamedArray) -> NamedArray:
    """The smallest element."""
    return amin(t, x)


@handles("any.default", "any.dim", "any.dims")
def any_(t: Lowering, x: NamedArray, dim: Axes = None, keepdim: bool = False) -> NamedArray:
    """Whether an element is true."""
    return t.apply("ne", sum_(t, truth(t, x, 0), dim, keepdim), 0.0)


@handles("all.default", "all.dim", "all.dims")
def all_(t: Lowering, x: NamedArray, dim: Axes = None, keepdim: bool = False) -> NamedArray:
    """Whether no element is false."""
    return t.apply("eq", sum_(t, t.apply("not", truth(t, x, 0)), dim, keepdim), 0.0)


@handles("argmax.default")
def argmax(t: Lowering, x: NamedArray, dim: int | None = None, keepdim: bool = False) -> NamedArray:
    """The first position of the largest element: the least of those whose element it is, or NaN."""
    return _position(t, x, dim, keepdim, smallest=False)


@handles("argmin.default")
def argmin(t: Lowering, x: NamedArray, dim: int | None = None, keepdim: bool = False) -> NamedArray:
    """The first position of the smallest element, or of NaN."""
    return _position(t, x, dim, keepdim, smallest=True)


@handles("max.dim")
def max_dim(
    t: Lowering, x: NamedArray, dim: int, keepdim: bool = False
) -> tuple[NamedArray, NamedArray]:
    """The maximum over one axis, and its first position."""
    return amax(t, x, dim, keepdim), argmax(t, x, dim, keepdim)


@handles("min.dim")
def min_dim(
    t: Lowering, x: NamedArray, dim: int, keepdim: bool = False
) -> tuple[NamedArray, NamedArray]:
    """The minimum over one axis, and its first position."""
    return amin(t, x, dim, keepdim), argmin(t, x, dim, keepdim)


@handles("var.default", "var.dim", "var.correction")
def var(
    t: Lowering,
    x: NamedArray,
    dim: Axes = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> NamedArray:
    """The squared distances from the mean, summed and divided by count - correction."""
    if isinstance(dim, bool):  # var.default(x, unbiased)
        return var(t, x, None, dim)
    return _variance(
        t, x, dim, keepdim, (1.0 if unbiased else 0.0) if correction is None else correction
    )


@handles("var_mean.correction")
def var_mean(
    t: Lowering,
    x: NamedArray,
    dim: Axes = None,
    keepdim: bool = False,
    correction: float | None = None,
) -> tuple[NamedArray, NamedArray]:
    """The variance and the mean."""
    return var(t, x, dim, True, keepdim, correction), mean(t, x, dim, keepdim)


@handles("std_mean.correction")
def std_mean(
    t: Lowering,
    x: NamedArray,
    dim: Axes = None,
    keepdim: bool = False,
    correction: float | None = None,
) -> tuple[NamedArray, NamedArray]:
    """The square root of the variance, and the mean."""
    return std(t, x, dim, True, keepdim, correction), mean(t, x, dim, keepdim)


@handles("std.default", "std.dim", "std.correction")
def std(
    t: Lowering,
    x: NamedArray,
    dim: Axes = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> NamedArray:
    """The square root of the variance."""
    return t.apply("sqrt", var(t, x, dim, unbiased, keepdim, correction))


@handles("linalg_vector_norm.default")
def vector_norm(
    t: Lowering,
    x: NamedArray,
    order: float = 2,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> NamedArray:
    """The 1, 2 or infinity norm over axes."""
    x = cast(t, x, dtype)
    if order == 2:
        return t.apply("sqrt", sum_(t, t.apply("square", x), dim, keepdim))
    if order == 1:
        return sum_(t, t.apply("abs", x), dim, keepdim)
    if order == math.inf:
        return amax(t, t.apply("abs", x), dim, keepdim)
    raise t.refuse(
        f"the {order:g}-norm is not supported",
        why="it is neither a sum, nor a root of a sum of squares, nor a maximum",
        repair="use the 1, 2 or infinity norm, or write it with abs, pow and sum",
    )


@handles("logsumexp.default")
def logsumexp(t: Lowering, x: NamedArray, dim: Axes, keepdim: bool = False) -> NamedArray:
    """log(sum(exp(x))), shifted by the maximum so that nothing overflows."""
    top = amax(t, x, dim, keepdim=True)
    shifted = t.apply("sub", x, top)
    total = sum_(
        t, NamedArray(masked_exp.exponential(t.builder, shifted.node), shifted.axes), dim, True
    )
    result = t.apply("add", t.apply("log", total), top)
    return NamedArray(result.node, without(result, dim, keepdim))


def _position(
    t: Lowering, x: NamedArray, dim: int | None, keepdim: bool, *, smallest: bool
) -> NamedArray:
    if dim is None:
        x, dim, keepdim = flatten(t, x), 0, False
    if not x.axes:
        return t.full((), 0.0)
    key = compared(t, t.apply("neg", x) if smallest else x)
    place, extent = dim % len(x.axes), t.shape(x)[dim]
    block = _block(extent)
    # A reduction over the same row would be one over blocks too.
    if block == extent or _is_reduced(t, x):
        return _first(t, key, position(t, key, place), place, keepdim, beyond=extent)
    shape = t.shape(x)
    cut = (*shape[:place], extent // block, block, *shape[place + 1 :])
    key = views.reshape(t.builder, key, cut)
    inside = _first(t, key, position(t, key, place + 1), place + 1, False, beyond=block)
    tops = amax(t, key, place + 1)
    before = t.apply("mul", position(t, tops, place), float(block))
    return _first(t, tops, t.apply("add", before, inside), place, keepdim, beyond=extent)


def _first(
    t: Lowering, key: NamedArray, at: NamedArray, axis: int, keepdim: bool, *, beyond: int
) -> NamedArray:
    """The least of the positions ``at`` along an axis whose key is the largest, or NaN."""
    found = t.apply("or", t.apply("eq", key, amax(t, key, axis, True)), t.apply("isnan", key))
    return amin(t, t.apply("where", found, at, float(beyond)), axis, keepdim)


def _block(extent: int) -> int:
    """The length of the blocks of a long axis: a power of two where it divides, and the axis itself
    where it is short or has no such divisor.
    """
    if extent <= _SHORT_ROW:
        return extent
    block = math.gcd(extent, _LONGEST_BLOCK)
    return block if block >= _SHORTEST_BLOCK else extent


def stored_once(t: Lowering, x: NamedArray) -> None:
    """Has what is read at other indices too in memory, unless no reduction goes into it."""
    if _is_reduced(t, x):
        t.builder.stored(x.node)


def _is_reduced(t: Lowering, x: NamedArray) -> bool:
    """Whether a reduction goes into a value."""
    return any(t.builder.nodes[n].op in REDUCING for n in cone(t.builder.nodes, [x.node]))


def axis_numbers(x: NamedArray, dim: Axes) -> tuple[int, ...]:
    """The axes that ``dim`` names; none named means all of them."""
    rank = len(x.axes)
    if dim is None or dim in ([], ()):
        return tuple(range(rank))
    numbers = (dim,) if isinstance(dim, int) else dim
    # torch lets a tensor without axes be reduced over its axis 0.
    return tuple(n % rank for n in numbers) if rank else ()


def dims_of(x: NamedArray, dim: Axes) -> list[str]:
    """The dimensions of the axes that ``dim`` names."""
    return [d for n in axis_numbers(x, dim) for d in x.axes[n]]


def without(x: NamedArray, dim: Axes, keepdim: bool) -> tuple[views.Axis, ...]:
    """The axes that a reduction leaves."""
    gone = axis_numbers(x, dim)
    kept = (
        (() if n in gone else axis) for n, axis in enumerate(x.axes) if keepdim or n not in gone
    )
    return tuple(kept)


def _maximum(t: Lowering, x: NamedArray, dims: Sequence[str]) -> int:
    return t.builder.max(compared(t, x).node, dims)


def compared(t: Lowering, x: NamedArray) -> NamedArray:
    """What stands for x in comparisons: a masked value is the lowest number, as infinities would
    survive in the program.
    """
    masked = masked_exp.split(t.builder, x.node)
    node = masked.finite
    lowest = t.builder.const(LOWEST)
    if masked.predicate.dims():
        node = t.builder.apply("where", t.builder.mask(masked.predicate), node, lowest)
    for factor in masked.factors:
        node = t.builder.apply("where", factor, node, lowest)
    return NamedArray(node, x.axes)


def _variance(
    t: Lowering, x: NamedArray, dim: Axes, keepdim: bool, correction: float
) -> NamedArray:
    count = math.prod(t.shape(x)[n] for n in axis_numbers(x, dim))
    if count <= correction:
        raise t.refuse(
            f"the variance of {count} numbers with correction {correction:g} is not defined",
            repair="reduce over more numbers, or pass correction=0",
        )
    centred = t.apply("sub", x, mean(t, x, dim, keepdim=True))
    squares = sum_(t, t.apply("square", centred), dim, keepdim)
    return t.apply("div", squares, float(count - correction))
