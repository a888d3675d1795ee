"""Scans and sorts: each element is reduced with all before it, or compared with all others.

A scan is a reduction under a triangular mask. The rank of an element is the number of those that
come before it, of equal ones those in front; what has rank r is found as a sum with one term.
"""

from __future__ import annotations

import functools
import math

import torch

from mirage_py.frontend.torch.handlers.casts import cast
from mirage_py.frontend.torch.handlers.masks import position
from mirage_py.frontend.torch.handlers.reductions import compared, logsumexp, stored_once, sum_
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.views import NamedArray

# Up to so many elements each is compared with each; more are blocks, and blocks of blocks.
_SHORT = 256
# A product of so many factors is written out.
_FACTORS = 16
# Each element of a longer row would be compared with too many.
_LONGEST = 512
# What NaN counts as: more than every number but infinity.
_NAN = 3.4028234663852886e38


@handles("cumsum.default")
def cumsum(t: Lowering, x: NamedArray, dim: int, dtype: torch.dtype | None = None) -> NamedArray:
    """The sum of all elements up to each: within its block, and of the blocks before."""
    if not x.axes:
        return cast(t, x, dtype)
    return _summed(t, cast(t, x, dtype), dim % len(x.axes), "le")


@handles("cumprod.default")
def cumprod(t: Lowering, x: NamedArray, dim: int, dtype: torch.dtype | None = None) -> NamedArray:
    """The product of all elements up to each, of a few."""
    x = cast(t, x, dtype)
    if not x.axes:
        return x
    extent = t.shape(x)[dim]
    _check_factors(t, extent)
    place = dim % len(x.axes)
    found = views.slice_axis(t.builder, x, place, 0, 1)
    result = views.expand(t.builder, found, t.shape(x))
    for n in range(1, extent):
        factor = views.slice_axis(t.builder, x, place, n, n + 1)
        reached = t.apply("ge", position(t, result, place), n)
        result = t.apply("mul", result, t.apply("where", reached, factor, 1.0))
    return result


@handles("prod.default", "prod.dim_int")
def prod(
    t: Lowering,
    x: NamedArray,
    dim: int | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> NamedArray:
    """The product of a few elements."""
    x = cast(t, x, dtype)
    if dim is None:
        x, dim = views.reshape(t.builder, x, (-1,)), 0
    if not x.axes:
        return x
    place = dim % len(x.axes)
    count = t.shape(x)[place]
    _check_factors(t, count)
    factors = [views.slice_axis(t.builder, x, place, n, n + 1) for n in range(count)]
    found = functools.reduce(lambda a, b: t.apply("mul", a, b), factors)
    axes = (*found.axes[:place], *found.axes[place + 1 :])
    return found if keepdim else NamedArray(found.node, axes)


def _check_factors(t: Lowering, count: int) -> None:
    if count > _FACTORS:
        raise t.refuse(
            f"a product of up to {count} elements is not supported",
            why="products along an axis are no reduction of a program",
            repair="use exp(cumsum(log(x))) where x > 0, or leave it to torch",
        )


@handles("logcumsumexp.default")
def logcumsumexp(t: Lowering, x: NamedArray, dim: int) -> NamedArray:
    """The logarithm of the sum of the exponentials of all elements up to each."""
    if not x.axes:
        return x
    place = dim % len(x.axes)
    seen, mask = _seen(t, x, place, "le")
    return logsumexp(t, t.apply("where", mask, seen, -math.inf), place + 1)


def _summed(t: Lowering, x: NamedArray, place: int, up_to: str) -> NamedArray:
    extent = t.shape(x)[place]
    block = _block(extent)
    if block == extent:
        seen, mask = _seen(t, x, place, up_to)
        return sum_(t, t.apply("where", mask, seen, 0.0), place + 1)
    shape = t.shape(x)
    cut = (*shape[:place], extent // block, block, *shape[place + 1 :])
    blocks = views.reshape(t.builder, x, cut)
    inside = _summed(t, blocks, place + 1, up_to)
    before = _summed(t, sum_(t, blocks, place + 1), place, "lt")
    total = t.apply("add", inside, views.unsqueeze(t.builder, before, place + 1))
    return views.reshape(t.builder, total, shape)


def _block(extent: int) -> int:
    """The length of the blocks, all of the axis where it is short or has no divisor."""
    if extent <= _SHORT:
        return extent
    return next((b for b in range(_SHORT, 15, -1) if extent % b == 0), extent)


def _seen(t: Lowering, x: NamedArray, place: int, op: str) -> tuple[NamedArray, NamedArray]:
    """For each element all of its axis, on one more axis behind; and which are at ``op`` to it."""
    seen = views.unsqueeze(t.builder, x, place)
    shape = list(t.shape(seen))
    shape[place] = shape[place + 1]
    seen = views.expand(t.builder, seen, shape)
    return seen, t.apply(op, position(t, seen, place + 1), position(t, seen, place))


@handles("topk.default")
def topk(
    t: Lowering,
    x: NamedArray,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002  as torch calls it
) -> tuple[NamedArray, NamedArray]:
    """The first k elements in order, and their positions."""
    del sorted
    return _ordered(t, x, dim, k, descending=largest)


@handles("sort.default")
def sort(
    t: Lowering, x: NamedArray, dim: int = -1, descending: bool = False
) -> tuple[NamedArray, NamedArray]:
    """The elements in order, equal ones as they were, and their positions."""
    return _ordered(t, x, dim, None, descending)


@handles("sort.stable")
def sort_stable(
    t: Lowering, x: NamedArray, *, stable: bool = False, dim: int = -1, descending: bool = False
) -> tuple[NamedArray, NamedArray]:
    """The same."""
    del stable
    return _ordered(t, x, dim, None, descending)


@handles("kthvalue.default")
def kthvalue(
    t: Lowering, x: NamedArray, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[NamedArray, NamedArray]:
    """The k-th smallest element along an axis, and its position."""
    if not x.axes:
        return x, t.full((), 0.0)
    place = dim % len(x.axes)
    values, places = _ordered(t, x, dim, None, descending=False)
    first, last = k - 1, k
    found = [views.slice_axis(t.builder, a, place, first, last) for a in (values, places)]
    if not keepdim:
        found = [NamedArray(a.node, (*a.axes[:place], *a.axes[place + 1 :])) for a in found]
    return found[0], found[1]


@handles("bucketize.Tensor")
def bucketize(
    t: Lowering, x: NamedArray, bounds: NamedArray, *, out_int32: bool = False, right: bool = False
) -> NamedArray:
    """How many numbers in order are less than each element, or no more than it; NaN is the last."""
    del out_int32
    return _before(t, views.unsqueeze(t.builder, x, len(x.axes)), bounds, right=right)


@handles("searchsorted.Tensor")
def searchsorted(
    t: Lowering,
    ordered: NamedArray,
    x: NamedArray,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: NamedArray | None = None,
) -> NamedArray:
    """The same, of rows of numbers in order."""
    del out_int32
    if sorter is not None:
        raise t.refuse(
            "searchsorted with an order apart is not supported", repair="sort the numbers first"
        )
    is_right = right if side is None else side == "right"
    if len(ordered.axes) > 1:
        ordered = views.unsqueeze(t.builder, ordered, len(ordered.axes) - 1)
    return _before(t, views.unsqueeze(t.builder, x, len(x.axes)), ordered, right=is_right)


def _before(t: Lowering, x: NamedArray, ordered: NamedArray, *, right: bool) -> NamedArray:
    last = len(ordered.axes) - 1
    if t.shape(ordered)[last] > 1:
        ordered = views.renewed(t.builder, ordered, last)
    is_before = t.apply("not", t.apply("gt" if right else "ge", ordered, x))
    return sum_(t, is_before, len(is_before.axes) - 1)


def _ordered(
    t: Lowering, x: NamedArray, dim: int, count: int | None, descending: bool
) -> tuple[NamedArray, NamedArray]:
    if not x.axes:
        return x, t.full((), 0.0)
    place = dim % len(x.axes)
    extent = t.shape(x)[place]
    if extent > _LONGEST:
        raise t.refuse(
            f"the order of {extent} elements is not supported",
            why="each is compared with each",
            repair="leave this step to torch, outside the function",
        )
    # One axis for the elements, in front of it one for what they are compared with; then ranks.
    stored_once(t, x)
    key = compared(t, x)
    key = t.apply("where", t.apply("isnan", key), _NAN, key)
    one = views.unsqueeze(t.builder, key, place)
    other = views.unsqueeze(t.builder, views.renewed(t.builder, key, place), place + 1)
    before = ("gt", "ge") if descending else ("lt", "le")
    earlier = t.apply("lt", position(t, other, place), position(t, one, place + 1))
    strict, loose = (t.apply(op, other, one) for op in before)
    rank = sum_(t, t.apply("where", earlier, loose, strict), place)
    size = extent if count is None else count
    shape = list(t.shape(x))
    wanted = t.full([*shape[:place], size, *[1] * (len(shape) - place)], 0.0)
    chosen = t.apply("eq", views.unsqueeze(t.builder, rank, place), position(t, wanted, place))
    whole = views.unsqueeze(t.builder, x, place)
    values, places = (
        sum_(t, t.apply("where", chosen, of, 0.0), place + 1)
        for of in (whole, position(t, whole, place + 1))
    )
    return values, places
