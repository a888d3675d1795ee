"""Tables of a few numbers, written down in a program, that codes are looked up in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.ugraph.building import composites
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import Axis, axis_extent
from mirage_py.ugraph.checks.whole_numbers import whole_bounds
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.operators import ELEMENTWISE, operator

_MOST = 16


def looked_up(builder: ProgramBuilder, table: int, axis: Axis, code: int) -> int | None:
    """The element of ``table``, which has this axis alone, that ``code`` numbers; None where the
    table is of other numbers than constants, or a code may lie outside.
    """
    extent = axis_extent(builder, axis)
    if len(axis) != 1 or extent > _MOST or not _is_within(builder, code, extent):
        return None
    found = [_value(builder, table, {axis[0]: place}) for place in range(extent)]
    values = [value for value in found if value is not None]
    return _chosen(builder, code, values) if len(values) == extent else None


def _is_within(builder: ProgramBuilder, code: int, extent: int) -> bool:
    bounds = whole_bounds(builder.nodes, builder.sizes, builder.inputs)[code]
    return bounds is not None and 0 <= bounds[0] and bounds[1] < extent


def _value(builder: ProgramBuilder, number: int, at: Mapping[str, int]) -> float | None:
    node = builder.nodes[number]
    if isinstance(node.attr, (IndexExpr, Predicate)):
        is_read = isinstance(node.attr, IndexExpr) and node.attr.tensors()
        is_known = node.op in ("index", "mask") and not is_read and set(node.dims) <= set(at)
        return float(node.attr.evaluate(at)) if is_known else None
    if node.op == "const":
        return node.attr if isinstance(node.attr, float) else None
    row = operator(node.op)
    if row.kind != ELEMENTWISE or row.over_floats is None or node.attr is not None:
        return None
    args = [_value(builder, a, at) for a in node.args]
    return None if None in args else float(row.over_floats(*args))


def _chosen(builder: ProgramBuilder, code: int, values: Sequence[float]) -> int:
    if list(values) == composites.E2M1:
        return composites.e2m1(builder, code)
    found = builder.const(values[-1])
    for number in reversed(range(len(values) - 1)):
        here = builder.apply("le", code, builder.const(float(number)))
        found = builder.apply("where", here, builder.const(values[number]), found)
    return found
