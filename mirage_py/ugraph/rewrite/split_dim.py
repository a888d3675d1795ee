"""Splitting of a dimension, so that blocks share a reduction and a second kernel combines it.

Dimension d of size D becomes ``d_part`` (the outer one, with one point per split) and ``d`` (the
inner one, of D / splits points): every index d becomes ``d_part * (D / splits) + d``, and every
reduction over d goes over both. Inputs and outputs keep their names and shapes, so a µGraph of the
new program implements the old one. This is split-K of matmuls and split-KV of attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from mirage_py.errors import InputError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Attr, Node
from mirage_py.ugraph.ir.program import Dim, Output, Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph
from mirage_py.ugraph.rewrite.rebuild import copied

_SUFFIX = "_part"
# A position, and the extents of the axes in which it has its digits.
Run = tuple[IndexExpr, tuple[int, ...]]


def _check_splits(where: str, dim: str, size: int, splits: int) -> None:
    """At least two splits of at least two points each: a stride of 1 would be no product."""
    if not 2 <= splits <= size // 2 or size % splits:
        raise InputError(
            f"dimension '{dim}' of size {size} has no {splits} equal parts",
            where=where,
            repair="split by a divisor of the size, but not by 1 or the size itself",
        )


def outer_dim(dim: str) -> str:
    """The name of the outer half of a split dimension."""
    return dim + _SUFFIX


def split_dim(program: Program, dim: str, splits: int) -> Program:
    """The program with ``dim`` split in ``splits`` parts of equal size.

    Raises InputError where ``splits`` is no proper divisor of the size, or the new name is taken.
    """
    size = program.sizes[dim]
    outer = outer_dim(dim)
    _check_splits(program.name, dim, size, splits)
    if outer in program.sizes or outer in program.tensors:
        raise InputError(f"the name '{outer}' is taken", where=program.name)
    builder = ProgramBuilder(program.name, program.fp32_precision)
    for d in program.dims:
        if d.name == dim:
            builder.dim(outer, splits)
        builder.dim(d.name, size // splits if d.name == dim else d.size)
    for tensor in program.inputs:
        builder.input(tensor.name, tensor.shape, tensor.dtype, tensor.strides)
    exprs = {dim: ix.dim(outer) * (size // splits) + ix.dim(dim)}
    new: list[int] = []
    for node in program.nodes:
        args = [new[a] for a in node.args]
        if node.op == "size" and node.attr == dim:
            new.append(builder.apply("mul", builder.size(outer), builder.size(dim)))
        else:
            new.append(copied(builder, replace(node, attr=split_attr(node, dim, exprs)), args))
    builder.outputs.extend(
        Output(o.tensor, new[o.node], tuple(e.substitute(exprs) for e in o.index))
        for o in program.outputs
    )
    return builder.build()


def split_attr(node: Node, dim: str, exprs: Mapping[str, IndexExpr]) -> Attr:
    """The attribute of a node where ``dim`` is split: ``exprs`` has the sum that stands for it, and
    a reduction goes over both halves.
    """
    attr = node.attr
    if isinstance(attr, Access):
        return Access(attr.tensor, tuple(e.substitute(exprs) for e in attr.index))
    if isinstance(attr, (IndexExpr, Predicate)):
        return attr.substitute(exprs)
    if isinstance(attr, tuple) and dim in attr:
        return tuple(x for d in node.reduced for x in ((outer_dim(dim), d) if d == dim else (d,)))
    return attr


def splits_of(program: Program, dim: str) -> int:
    """How many splits a dimension has."""
    return program.sizes[outer_dim(dim)]


def with_splits(ugraph: UGraph, dim: str, splits: int) -> UGraph:
    """A µGraph of a split program with another number of splits; intermediates follow.

    Raises InputError where ``splits`` is no proper divisor of the size of the unsplit dimension.
    """
    program = ugraph.program
    outer = outer_dim(dim)
    before, inner = program.sizes[outer], program.sizes[dim]
    _check_splits(program.name, dim, before * inner, splits)
    change = _Stride(ugraph, dim, splits)
    resized = replace(
        program,
        dims=tuple(Dim(d.name, change.then[d.name]) for d in program.dims),
        nodes=tuple(replace(n, attr=change.attr(n.attr)) for n in program.nodes),
        outputs=tuple(
            replace(o, index=tuple(change.index(Access(o.tensor.name, o.index))))
            for o in program.outputs
        ),
    )
    kernels = tuple(_resized(k, change) for k in ugraph.kernels)
    shapes = _shapes(kernels, resized)
    intermediates = tuple(
        replace(t, shape=shapes.get(t.name, t.shape)) for t in ugraph.intermediates
    )
    return replace(ugraph, program=resized, kernels=kernels, intermediates=intermediates)


def in_runs(access: Access, shape: Sequence[int], dim: str, sizes: Mapping[str, int]) -> list[Run]:
    """The index of a tensor by runs of its axes, each with their extents: axes in which a position
    of the split dimension ``dim`` has its digits are a run at that position, if that is so of all.
    """
    alone: list[Run] = [(e, (extent,)) for e, extent in zip(access.index, shape, strict=True)]
    runs = list(alone)
    for axis in range(len(runs) - 2, -1, -1):
        (row, before), (place, behind) = runs[axis : axis + 2]
        whole = ix.joint(row, place, prod(behind), sizes)
        # A split may be all that there is behind an axis.
        is_split = row.dims() == (outer_dim(dim),) and place.dims() == (dim,)
        if is_split or ix.divisions(whole) < ix.divisions(row) + ix.divisions(place):
            runs[axis : axis + 2] = [(whole, (*before, *behind))]
    return alone if any(len(n) > 1 and ix.divisions(e) for e, n in runs) else runs


def _digits(run: Run, sizes: Mapping[str, int]) -> Iterator[IndexExpr]:
    """The index of each axis of a run."""
    position, extents = run
    for axis, extent in enumerate(extents):
        behind = prod(extents[axis + 1 :])
        digit = ix.floordiv(position, behind)
        yield ix.simplify(ix.mod(digit, extent) if axis else digit, sizes)


class _Stride:
    """Replaces the distance between two splits wherever an index has it; ``sizes`` are before and
    after.
    """

    def __init__(self, ugraph: UGraph, dim: str, splits: int) -> None:
        program = ugraph.program
        self.dim, self.outer = dim, outer_dim(dim)
        self.before = program.sizes[dim]
        self.after = self.before * program.sizes[self.outer] // splits
        self.shapes = {name: tensor.shape for name, tensor in ugraph.tensors.items()}
        self.sizes = program.sizes
        self.then = {**program.sizes, self.outer: splits, dim: self.after}

    def attr(self, attr: Attr) -> Attr:
        if isinstance(attr, Access):
            return Access(attr.tensor, tuple(self.index(attr)))
        if isinstance(attr, IndexExpr):
            return self.expr(attr)
        return self.predicate(attr) if isinstance(attr, Predicate) else attr

    def index(self, access: Access) -> Iterator[IndexExpr]:
        """The index of each axis."""
        if len(access.index) == 1:
            yield self.expr(access.index[0])
            return
        shape = self.shapes[access.tensor]
        for position, extents in in_runs(access, shape, self.dim, self.sizes):
            run = self.expr(position), extents
            yield from _digits(run, self.then) if len(extents) > 1 else run[:1]

    def expr(self, expr: IndexExpr) -> IndexExpr:
        if expr.op == "mul" and expr.args[0].is_dim and expr.args[0].name == self.outer:
            # Or a share of it, where a split is so many rows.
            return ix.mul(expr.args[0], expr.value * self.after // self.before)
        return replace(expr, args=tuple(map(self.expr, expr.args)))

    def predicate(self, predicate: Predicate) -> Predicate:
        return Predicate(
            predicate.op,
            tuple(map(self.expr, predicate.exprs)),
            tuple(map(self.predicate, predicate.args)),
        )


def _resized(kernel: Kernel, change: _Stride) -> Kernel:
    if not isinstance(kernel, BlockGraph):
        return kernel
    nodes = tuple(replace(n, attr=change.attr(n.attr)) for n in kernel.nodes)
    return replace(kernel, nodes=nodes)


def _shapes(kernels: tuple[Kernel, ...], program: Program) -> dict[str, tuple[int, ...]]:
    """Extents of what the kernels store: one more than the largest index."""
    shapes: dict[str, tuple[int, ...]] = {}
    for kernel in kernels:
        if isinstance(kernel, BlockGraph):
            for _, node in kernel.stores():
                access = node.access
                ends = (e.bounds(program.sizes)[1] + 1 for e in access.index)
                shapes[access.tensor] = tuple(ends)
    return shapes
