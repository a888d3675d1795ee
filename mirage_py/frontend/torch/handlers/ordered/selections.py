"""Selections: elements in order, by comparisons with all others.

The rank of an element is the number of those that come before it, of equal ones those in front;
what has rank r is found as a sum with one term.
"""

from __future__ import annotations

from mirage_py.frontend.torch.handlers.masks import position
from mirage_py.frontend.torch.handlers.reductions import compared, sum_
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.node import REDUCING

# Each element of a longer row would be compared with too many.
_LONGEST = 512
# What NaN counts as: more than every number but infinity.
_NAN = 3.4028234663852886e38


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
    if any(t.builder.nodes[n].op in REDUCING for n in cone(t.builder.nodes, [x.node])):
        t.builder.stored(x.node)
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
