"""Tables of a few numbers that codes are looked up in: each is chosen by its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.ugraph.building import composites
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray, axis_extent, reindex
from mirage_py.ugraph.checks.whole_numbers import whole_bounds
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.operators import ELEMENTWISE, operator

_MOST = 16


def looked_up(builder: ProgramBuilder, table: NamedArray, code: int) -> int | None:
    """The element of ``table``, which has one axis, that ``code`` numbers; None where it has too
    many, or a code may lie outside.
    """
    (axis,) = table.axes
    extent = axis_extent(builder, axis)
    if len(axis) != 1 or extent > _MOST or not _is_within(builder, code, extent):
        return None
    values = [_value(builder, table.node, {axis[0]: place}) for place in range(extent)]
    if values == composites.E2M1:
        return composites.e2m1(builder, code)
    elements = [
        reindex(builder, table, {0: ix.const(place)}) if value is None else builder.const(value)
        for place, value in enumerate(values)
    ]
    return _chosen(builder, code, elements)


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


def _chosen(builder: ProgramBuilder, code: int, elements: Sequence[int]) -> int:
    found = elements[-1]
    for number in reversed(range(len(elements) - 1)):
        here = builder.apply("le", code, builder.const(float(number)))
        found = builder.apply("where", here, elements[number], found)
    return found
