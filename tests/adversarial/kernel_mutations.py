"""Mutations across kernels: values between them, the blocks that store, the sums of splits.

Importing this registers them with ``mutations``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from adversarial.mutations import graph_mutation, mutation
from adversarial.surgery import (
    blocks,
    changed,
    inserted,
    masked,
    of,
    with_index,
    with_kernel,
    with_node,
)

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph

# -- partial results ------------------------------------------------------------------------------


@mutation
def leaves_out_a_part(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The last point of a dimension is multiplied away where a tensor is read."""
    for n, node in of(block, "load"):
        for d in node.dims:
            if program.sizes[d] > 1:
                yield masked(block, n, ix.compare("lt", ix.dim(d), program.sizes[d] - 1))


@mutation
def reads_a_part_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The first point of a dimension instead of the last one."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            if expr.is_dim and program.sizes[expr.name] > 2:
                last = program.sizes[expr.name] - 1
                yield changed(block, n, attr=with_index(node.access, axis, expr % last))


@mutation
def takes_another_stride(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Parts that overlap, or leave something out between them."""
    for n, node in enumerate(block.nodes):
        if isinstance(node.attr, Access | Predicate):
            for factor in _strides(node.attr):
                for wrong in (factor - 1, factor // 2, factor + 1):
                    if wrong > 0:
                        yield changed(block, n, attr=_restrided(node.attr, factor, wrong))


@mutation
def reads_with_permuted_indices(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Two axes of a load exchanged."""
    for n, node in of(block, "load"):
        index = node.access.index
        for one in range(len(index)):
            for other in range(one + 1, len(index)):
                if index[one] != index[other]:
                    swapped = list(index)
                    swapped[one], swapped[other] = index[other], index[one]
                    yield changed(block, n, attr=Access(node.access.tensor, tuple(swapped)))
                    # The same without leaving the tensor.
                    ends = [e.bounds(program.sizes)[1] + 1 for e in index]
                    inside = (e % end for e, end in zip(swapped, ends, strict=True))
                    yield changed(block, n, attr=Access(node.access.tensor, tuple(inside)))


@mutation
def forgets_to_rescale_a_part(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A partial result as it was stored, relative to the maximum of its own part."""
    for n, node in of(block, "mul", "matmul"):
        for place, argument in enumerate(node.args):
            if block.nodes[argument].op == "exp":
                shifted = block.nodes[block.nodes[argument].args[0]]
                if shifted.op == "sub" and block.nodes[shifted.args[0]].op == "load":
                    # exp(0) for all splits, in the dimensions of the factor that is left out.
                    yield _with_unit_factor(block, n, place)


# -- which blocks store ---------------------------------------------------------------------------


@mutation
def puts_another_dimension_on_the_grid(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A grid axis over a dimension that a block needs whole, or does not know."""
    for number, axis in enumerate(block.grid):
        for d in program.dim_names:
            if d not in block.grid_tiles:
                grid = list(block.grid)
                grid[number] = replace(axis, dim=d, tile=None)
                yield replace(block, grid=tuple(grid))


@graph_mutation
def stores_without_a_place(graph: UGraph) -> Iterator[UGraph]:
    """All blocks along an axis write the first place: only one would, but they differ."""
    for number, block in blocks(graph):
        for n, node in of(block, *STORES):
            for axis, expr in enumerate(node.access.index):
                if expr.dims():
                    access = with_index(node.access, axis, ix.const(0))
                    yield with_node(graph, number, n, replace(node, attr=access))


@graph_mutation
def stores_along_another_axis(graph: UGraph) -> Iterator[UGraph]:
    """The first block along the wrong axis writes."""
    names = graph.program.dim_names
    for number, block in blocks(graph):
        for n, node in of(block, *STORES):
            for gone in (d for d in node.dims if d in block.grid_tiles):
                for kept in block.predicated_axes(node):
                    index = tuple(e.substitute({gone: ix.dim(kept)}) for e in node.access.index)
                    access = Access(node.access.tensor, index)
                    dims = tuple(d for d in names if d in access.dims())
                    yield with_node(graph, number, n, replace(node, attr=access, dims=dims))


@graph_mutation
def stores_for_an_addition(graph: UGraph) -> Iterator[UGraph]:
    """The last block's value for the sum over all blocks."""
    for number, block in blocks(graph):
        for n, node in of(block, "store_add"):
            yield with_node(graph, number, n, replace(node, op="store"))


@mutation
def adds_what_all_blocks_have(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Only the first part is read, by all blocks: one of them adds it."""
    for _, store in of(block, "store_add"):
        first = {d: ix.const(0) for d in block.summed_axes(store)}
        wrong = block
        for n, node in of(block, "load"):
            index = tuple(e.substitute(first) for e in node.access.index)
            wrong = changed(wrong, n, attr=Access(node.access.tensor, index))
        yield wrong


# -- kernels --------------------------------------------------------------------------------------


@graph_mutation
def leaves_a_kernel_out(graph: UGraph) -> Iterator[UGraph]:
    """A kernel that is not launched."""
    for number in range(len(graph.kernels)):
        yield replace(graph, kernels=graph.kernels[:number] + graph.kernels[number + 1 :])


@graph_mutation
def runs_kernels_in_another_order(graph: UGraph) -> Iterator[UGraph]:
    """Kernels in reverse."""
    if len(graph.kernels) > 1:
        yield replace(graph, kernels=graph.kernels[::-1])


@graph_mutation
def multiplies_other_tensors(graph: UGraph) -> Iterator[UGraph]:
    """A library call on another tensor."""
    for number, kernel in enumerate(graph.kernels):
        if isinstance(kernel, LibraryCall):
            for place in range(len(kernel.args)):
                for name in graph.tensors:
                    args = (*kernel.args[:place], name, *kernel.args[place + 1 :])
                    if args != kernel.args:
                        yield with_kernel(graph, number, replace(kernel, args=args))


# -- inside ---------------------------------------------------------------------------------------


def _with_unit_factor(block: BlockGraph, user: int, place: int) -> BlockGraph:
    """One operand of a product is 1, with the same dimensions."""
    argument = block.nodes[user].args[place]
    zero = Node("sub", (argument, argument), None)
    wider = inserted(block, user, [zero, Node("exp", (user,), None)])
    node = wider.nodes[user + 2]
    args = (*node.args[:place], user + 1, *node.args[place + 1 :])
    return changed(wider, user + 2, args=args)


def _strides(attr: Access | Predicate) -> list[int]:
    """Factors of dimensions in the index expressions of an attribute."""
    found: dict[int, None] = {}
    todo = list(_expressions(attr))
    while todo:
        expr = todo.pop()
        todo += expr.args
        if expr.op == "mul" and expr.value > 1:
            found[expr.value] = None
    return list(found)


def _expressions(attr: Access | Predicate) -> Iterator[IndexExpr]:
    if isinstance(attr, Access):
        yield from attr.index
        return
    yield from attr.exprs
    for part in attr.args:
        yield from _expressions(part)


def _restrided(attr: Access | Predicate, old: int, new: int) -> Access | Predicate:
    def expression(expr: IndexExpr) -> IndexExpr:
        value = new if expr.op == "mul" and expr.value == old else expr.value
        return replace(expr, value=value, args=tuple(map(expression, expr.args)))

    if isinstance(attr, Access):
        return Access(attr.tensor, tuple(map(expression, attr.index)))
    exprs = tuple(map(expression, attr.exprs))
    args = tuple(_restrided(a, old, new) for a in attr.args)
    return Predicate(attr.op, exprs, tuple(a for a in args if isinstance(a, Predicate)))
