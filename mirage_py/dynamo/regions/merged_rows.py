"""Two axes of open sizes, as batch and length, taken for one axis of rows.

A linear layer multiplies the rows ``n0*n1`` of a tensor ``[n0, n1, 4096]``: to a kernel neither is
a dimension by itself, and only their product says something. Where a region does the same to every
row, it makes of ``[n0, n1, ...]`` what it makes of ``[1, n0*n1, ...]`` in the same memory. So it is
one of fewer open sizes, with a bucket and a search for numbers of rows, and not for pairs.

That it does so is looked at in programs, at pairs of sizes: the region traced there is spelt anew
with one dimension, ``m // n1`` and ``m % n1`` read as ``m``, and has to be the program of one row
of ``m``. A table that is read by position, a causal mask, a softmax over the length are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule

from mirage_py.dynamo.regions.region_program import RegionProgram, TensorLayout, region_program
from mirage_py.dynamo.regions.symbolic_sizes import Sizes, SymbolicSizes
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.ugraph.ir.renaming import rename_dims
from mirage_py.ugraph.rewrite.dims import fresh_dim, reduced_dims, with_dims
from mirage_py.ugraph.rewrite.rebuild import copied

# At which the programs are compared: neither divides the other.
_PROBES = ((3, 5), (7, 4), (34, 129))
# Of a size that is neither of the two.
_OTHER = 11


@dataclass(frozen=True)
class MergedRows:
    """Values of a region, which has the sizes ``apart``, as those of one with the sizes ``merged``,
    and back. ``inputs`` and ``results`` have the first of the two axes, None where there is none.
    """

    apart: SymbolicSizes
    merged: SymbolicSizes
    inputs: tuple[int | None, ...]
    results: tuple[int | None, ...]

    def given(self, values: Sequence[Any]) -> list[Any]:
        """The inputs of a call, tensors or layouts, with one axis of rows."""
        numbers = self._numbers(self.apart.of(values))
        return [
            next(numbers) if not hasattr(value, "shape") else _with_shape(value, axis)
            for value, axis in zip(values, self.inputs, strict=True)
        ]

    def arranged(
        self, found: Sequence[torch.Tensor], values: Sequence[Any]
    ) -> tuple[torch.Tensor, ...]:
        """The results of a call with the inputs ``values``, with both axes."""
        shapes = self.apart.result_shapes(self.apart.of(values))
        rows = zip(found, shapes, self.results, strict=True)
        return tuple(x if axis is None else x.view(shape) for x, shape, axis in rows)

    def sizes(self, sizes: Sizes) -> Sizes:
        """Sizes of the region as those with one axis of rows."""
        named = dict(zip(self.apart.names, sizes, strict=True))
        gone = next(n for n in self.apart.names if n not in self.merged.names)
        kept = self.merged.names[0]
        named[kept] *= named[gone]
        return tuple(named[n] for n in self.merged.names)

    def _numbers(self, sizes: Sizes) -> Any:
        layouts = self.merged.layouts(self.sizes(sizes))
        return iter([x for x in layouts if isinstance(x, int)])


def merged_rows(module: GraphModule, symbolic: SymbolicSizes) -> MergedRows | None:
    """The region with two axes as one, or None where it is not the same to every row."""
    for outer, inner in _pairs(symbolic):
        try:
            found = _merged(symbolic, outer, inner)
            if found is not None and all(_is_same(module, found, p) for p in _PROBES):
                return found
        # Torch, too, refuses sizes that fit no view, where names of other sizes are expressions.
        except Exception:  # noqa: BLE001, S112
            continue
    return None


def _pairs(symbolic: SymbolicSizes) -> list[tuple[str, str]]:
    """Names of axes side by side."""
    values = [v for v in (*symbolic.inputs, *symbolic.results) if v.dtype is not None]
    sides = [pair for v in values for pair in zip(v.shape, v.shape[1:], strict=False)]
    names = symbolic.names
    return [(a, b) for a, b in dict.fromkeys(sides) if a in names and b in names and a != b]


def _merged(symbolic: SymbolicSizes, outer: str, inner: str) -> MergedRows | None:
    axes: list[list[int | None]] = []
    for values in (symbolic.inputs, symbolic.results):
        axes.append([])
        for value in values:
            pairs = list(zip(value.shape, value.shape[1:], strict=False))
            axes[-1].append(pairs.index((outer, inner)) if (outer, inner) in pairs else None)
    merged = symbolic.where_one_is_1(outer, inner)
    if merged is None:
        return None
    found = MergedRows(symbolic, merged, tuple(axes[0]), tuple(axes[1]))
    return found if all(_lies_in_rows(found, p) for p in _PROBES) else None


def _at(rows: MergedRows, pair: tuple[int, int]) -> Sizes:
    """Sizes of the region at a pair of the two that are merged."""
    gone = next(n for n in rows.apart.names if n not in rows.merged.names)
    named = dict.fromkeys(rows.apart.names, _OTHER)
    named |= {gone: pair[0], rows.merged.names[0]: pair[1]}
    return tuple(named[n] for n in rows.apart.names)


def _lies_in_rows(rows: MergedRows, pair: tuple[int, int]) -> bool:
    """Whether every tensor has the same elements in the same order both ways: without gaps where it
    has the two axes, side by side, and else of the same shape.
    """
    sizes = _at(rows, pair)
    one, other, merged = rows.apart, rows.merged, rows.sizes(sizes)
    apart = [*one.layouts(sizes), *_result_layouts(one, sizes)]
    together = [*other.layouts(merged), *_result_layouts(other, merged)]
    for axis, a, m in zip((*rows.inputs, *rows.results), apart, together, strict=True):
        if isinstance(a, int) or isinstance(m, int):
            continue
        if m.shape != _rows_shape(a.shape, axis):
            return False
        if axis is None and m.strides != a.strides:
            return False
        if axis is not None and not (_is_dense(a) and _is_dense(m)):
            return False
    return True


def _result_layouts(symbolic: SymbolicSizes, sizes: Sizes) -> list[TensorLayout]:
    shapes, strides = symbolic.result_shapes(sizes), symbolic.result_strides(sizes)
    kinds = [(torch.float32, torch.device("cpu"))] * len(shapes)
    return [TensorLayout(s, t, *k) for s, t, k in zip(shapes, strides, kinds, strict=True)]


def _is_dense(layout: TensorLayout) -> bool:
    step = 1
    for size, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _with_shape(value: Any, axis: int | None) -> Any:
    if axis is None:
        return value
    shape = _rows_shape(value.shape, axis)
    if isinstance(value, torch.Tensor):
        return value.view(shape)
    strides = torch.empty(shape, device="meta").stride()
    return replace(value, shape=shape, strides=tuple(strides))


def _is_same(module: GraphModule, rows: MergedRows, pair: tuple[int, int]) -> bool:
    """Whether the region at a pair of sizes is the program of as many rows in one axis."""
    sizes = _at(rows, pair)
    one = region_program(module, rows.apart.layouts(sizes))
    other = region_program(module, rows.merged.layouts(rows.sizes(sizes)))
    if one.inputs != other.inputs or one.writes or other.writes:
        return False
    orders = [
        [(r.order == tuple(range(len(r.order))), r.is_copy) for r in p.results]
        for p in (one, other)
    ]
    if any(order != (True, False) for of in orders for order in of):
        return False
    found = _in_one_axis(one, rows, pair)
    return found is not None and _spelling(found) == _spelling(other.program)


def _in_one_axis(region: RegionProgram, rows: MergedRows, pair: tuple[int, int]) -> Program | None:
    """The program with both axes as one, if it is the same to every row so far as one can see."""
    program = region.program
    places = zip(program.inputs, region.inputs, strict=True)
    axes = {t.name: rows.inputs[n] for t, n in places}
    outputs = zip(program.outputs, region.results, strict=True)
    axes |= {o.tensor.name: rows.results[r.number] for o, r in outputs}
    with_axis = {name: axis for name, axis in axes.items() if axis is not None}
    exprs: dict[str, IndexExpr] = {}
    sizes: dict[str, int] = {}
    for tensor, index in _accesses(program):
        axis = with_axis.get(tensor)
        if axis is None or not (index[axis].is_dim and index[axis + 1].is_dim):
            continue
        first, second = index[axis].name, index[axis + 1].name
        if first in exprs and second in exprs:
            continue
        if first in exprs or second in exprs:
            return None
        name = fresh_dim(program, f"rows{len(sizes) or ''}")
        exprs |= {first: ix.dim(name) // pair[1], second: ix.dim(name) % pair[1]}
        sizes[name] = pair[0] * pair[1]
    sized = {str(n.attr) for n in program.nodes if n.op == "size"}
    if not exprs.keys().isdisjoint({*reduced_dims(program), *sized}):
        return None
    return _with_axes(with_dims(program, exprs, sizes) if exprs else program, with_axis, pair)


def _with_axes(program: Program, axes: Mapping[str, int], pair: tuple[int, int]) -> Program | None:
    """The program with both axes of tensors as one; None where one of two is read elsewhere."""
    indexes = [_rows_index(program, *access, axes, pair) for access in _accesses(program)]
    if None in indexes:
        return None
    given = iter([index for index in indexes if index is not None])
    builder = ProgramBuilder(program.name, program.fp32_precision)
    for d in program.dims:
        builder.dim(d.name, d.size)
    for tensor in program.inputs:
        shape = _rows_shape(tensor.shape, axes.get(tensor.name))
        builder.input(tensor.name, shape, tensor.dtype, tensor.strides)
    new: list[int] = []
    for node in program.nodes:
        if node.op == "load":
            new.append(builder.load(node.access.tensor, next(given)))
        else:
            new.append(copied(builder, node, [new[a] for a in node.args]))
    for output in program.outputs:
        shape = _rows_shape(output.tensor.shape, axes.get(output.tensor.name))
        tensor = replace(output.tensor, shape=shape)
        builder.outputs.append(Output(tensor, new[output.node], tuple(next(given))))
    return builder.build()


def _rows_shape(shape: Sequence[int], axis: int | None) -> tuple[int, ...]:
    if axis is None:
        return tuple(shape)
    return (*shape[:axis], 1, shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def _rows_index(
    program: Program,
    tensor: str,
    index: Sequence[IndexExpr],
    axes: Mapping[str, int],
    pair: tuple[int, int],
) -> list[IndexExpr] | None:
    inner = pair[1]
    all_rows = [ix.dim(d.name) for d in program.dims if d.size == pair[0] * inner]
    axis = axes.get(tensor)
    if axis is None:
        # Rows that a view counts: both dimensions in one axis.
        counted = {row // inner * inner + row % inner: row for row in all_rows}
        return [counted.get(expr, expr) for expr in index]
    for row in all_rows:
        if (index[axis], index[axis + 1]) == (row // inner, row % inner):
            return [*index[:axis], ix.const(0), row, *index[axis + 2 :]]
    return None


def _accesses(program: Program) -> list[tuple[str, Sequence[IndexExpr]]]:
    loads = [n.access for n in program.nodes if n.op == "load"]
    found = [(a.tensor, a.index) for a in loads]
    return [*found, *((o.tensor.name, o.index) for o in program.outputs)]


def _spelling(program: Program) -> object:
    """What a program is, whatever its dimensions are called and in which order they are."""
    names: dict[str, str] = {}
    for node in program.nodes:
        exprs = node.access.index if node.op == "load" else ()
        for d in (*(d for e in exprs for d in e.dims()), *node.dims):
            names.setdefault(d, f"x{len(names)}")
    found = rename_dims(program, {d: names.get(d, d) for d in program.dim_names})
    nodes = [(n.op, n.args, n.attr, frozenset(n.dims)) for n in found.nodes]
    sizes = {frozenset(found.sizes.items())}
    return nodes, found.inputs, found.outputs, sizes, found.fp32_precision
