"""Exact sets of integer points; the only module that uses isl.

A set has coordinates in an order, each with a name. Expressions may divide (``//`` and ``%`` by a
positive number), so every border, stride and quotient of an index expression has a set. isl counts
its operations; where it takes too many it stops with OutOfOperationsError.

Source: Verdoolaege, "isl: An Integer Set Library for the Polyhedral Model" (ICMS 2010).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import islpy as isl
import numpy as np

from mirage_py.ugraph.ir.index import IndexExpr

T = TypeVar("T")

Points = isl.Set
_SYMBOLS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}


class OutOfOperationsError(Exception):
    """The sets are too complicated for the operations that are allowed."""


class IntegerSets:
    """Makes sets that share one count of operations."""

    def __init__(self, max_operations: int) -> None:
        self._context = isl.Context()
        self._context.set_max_operations(max_operations)

    def box(self, sizes: Mapping[str, int]) -> Points:
        """All points with ``0 <= coordinate < size``."""
        return self._set(sizes, [_range(place, n) for place, n in enumerate(sizes.values())])

    def compared(self, op: str, left: IndexExpr, right: IndexExpr, names: Sequence[str]) -> Points:
        """The points, of all integers, where ``left op right``."""
        places = {name: f"v{place}" for place, name in enumerate(names)}
        condition = f"{_text(left, places)} {_SYMBOLS[op]} {_text(right, places)}"
        return self._set(names, [condition])

    def image(
        self,
        points: Points,
        names: Sequence[str],
        exprs: Sequence[IndexExpr],
        sizes: Mapping[str, int],
    ) -> Points:
        """The values that ``exprs`` have together at the points, whose coordinates are ``names``.

        Dimensions that are no coordinate take every value below their size.
        """
        others = [d for d in dict.fromkeys(d for e in exprs for d in e.dims()) if d not in names]
        places = {name: f"v{place}" for place, name in enumerate((*names, *others))}
        values = ", ".join(_text(e, places) for e in exprs)
        inside = " and ".join(f"0 <= {places[d]} < {sizes[d]}" for d in others) or "true"
        text = f"{{ [{', '.join(places.values())}] -> [{values}] : {inside} }}"

        def apply() -> Points:
            return points.add_dims(isl.dim_type.set, len(others)).apply(
                isl.Map.read_from_str(self._context, text)
            )

        return _counted(apply).coalesce()

    def _set(self, names: Sequence[str] | Mapping[str, int], conditions: Sequence[str]) -> Points:
        variables = ", ".join(f"v{place}" for place in range(len(names)))
        text = f"{{ [{variables}] : {' and '.join(conditions) or 'true'} }}"
        return _counted(lambda: isl.Set.read_from_str(self._context, text))


def common(left: Points, right: Points) -> Points | None:
    """Points of both; None if there are none."""
    found = _counted(lambda: left & right)
    return None if _counted(found.is_empty) else found


def without(left: Points, right: Points) -> Points | None:
    """Points of ``left`` alone; None if there are none."""
    found = _counted(lambda: left - right)
    return None if _counted(found.is_empty) else found


def leading(points: Points, count: int) -> Points:
    """What the first ``count`` coordinates can be."""
    more = points.dim(isl.dim_type.set) - count
    return _counted(lambda: points.project_out(isl.dim_type.set, count, more).coalesce())


def corners(points: Points) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first and the last point in lexicographic order, of a set with some."""
    return _point(_counted(points.lexmin)), _point(_counted(points.lexmax))


def random_point(points: Points, draw: np.random.Generator) -> tuple[int, ...]:
    """Some point: each coordinate in turn anywhere in what the ones before leave it."""
    for place in range(points.dim(isl.dim_type.set)):
        low, high = _bounds(points, place)
        wanted = int(draw.integers(low, high + 1))
        above = common(points, _half(points, place, wanted))
        # The next one that there is; a stride may leave out what is wanted.
        value = _bounds(points if above is None else above, place)[above is None]
        points = _counted(
            lambda p=points, at=place, v=value: p.fix_val(  # type: ignore[misc]
                isl.dim_type.set, at, isl.Val.int_from_si(p.get_ctx(), v)
            )
        )
    return _point(points)


def _bounds(points: Points, place: int) -> tuple[int, int]:
    low = _counted(lambda: points.dim_min_val(place))
    high = _counted(lambda: points.dim_max_val(place))
    return low.to_python(), high.to_python()


def _half(points: Points, place: int, least: int) -> Points:
    whole = isl.Set.universe(points.get_space())
    bound = isl.Val.int_from_si(points.get_ctx(), least)
    return whole.lower_bound_val(isl.dim_type.set, place, bound)


def _point(points: Points) -> tuple[int, ...]:
    found = _counted(points.sample_point)
    count = points.dim(isl.dim_type.set)
    return _counted(
        lambda: tuple(
            int(found.get_coordinate_val(isl.dim_type.set, n).to_python()) for n in range(count)
        )
    )


def _counted(run: Callable[[], T]) -> T:
    try:
        return run()
    except isl.Error as error:
        raise OutOfOperationsError(str(error)) from None


def _range(place: int, size: int) -> str:
    return f"0 <= v{place} < {size}"


def _text(expr: IndexExpr, places: Mapping[str, str]) -> str:
    if expr.op == "dim":
        return places[expr.name]
    if expr.op == "const":
        return str(expr.value)
    args = [_text(a, places) for a in expr.args]
    if expr.op == "add":
        return f"({args[0]} + {args[1]})"
    if expr.op == "mul":
        return f"({expr.value} * {args[0]})"
    if expr.op == "floordiv":
        return f"floor({args[0]} / {expr.value})"
    return f"({args[0]} mod {expr.value})"
