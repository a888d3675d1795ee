"""Mutations of the positions that are read, written, masked or counted.

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
    replaced_by,
    with_index,
    with_kernel,
    with_node,
)

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# -- tails ----------------------------------------------------------------------------------------


@mutation
def skips_the_tail(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Tiles that are not whole are left out."""
    for d, tile in _tiles(block).items():
        whole = program.sizes[d] - program.sizes[d] % tile
        if 0 < whole < program.sizes[d]:
            for n, node in of(block, "load"):
                if d in node.dims:
                    yield masked(block, n, ix.compare("lt", ix.dim(d), whole))


@mutation
def starts_one_tile_late(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The first iteration or block sees zeros."""
    for d, tile in _tiles(block).items():
        if tile < program.sizes[d]:
            for n, node in of(block, "load"):
                if d in node.dims:
                    yield masked(block, n, ix.compare("ge", ix.dim(d), tile))


@mutation
def reads_every_tile_at_its_start(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The first element of a tile for all of it: an offset that is not added."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            tile = _tiles(block).get(expr.name, 1) if expr.is_dim else 1
            if tile > 1:
                wrong = expr // tile * tile
                yield changed(block, n, attr=with_index(node.access, axis, wrong))


@mutation
def reads_the_first_tile_always(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The position inside a tile, without the tile's start: a wrong imap or fmap."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            tile = _tiles(block).get(expr.name, 0) if expr.is_dim else 0
            if 1 < tile < program.sizes[expr.name]:
                yield changed(block, n, attr=with_index(node.access, axis, expr % tile))


# -- loads ----------------------------------------------------------------------------------------


@mutation
def reads_backwards(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The last element first, along one axis of one tensor."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            last = expr.bounds(program.sizes)[1]
            if last > 0:
                wrong = ix.mul(expr, -1) + last
                yield changed(block, n, attr=with_index(node.access, axis, wrong))


@mutation
def reads_pairs_the_same(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Every second element, twice."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            if expr.bounds(program.sizes)[1] > 0:
                wrong = expr // 2 * 2
                yield changed(block, n, attr=with_index(node.access, axis, wrong))


@mutation
def repeats_for_interleaving(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Where two dimensions make one axis the other one is major: 0 1 0 1 for 0 0 1 1."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            dims = expr.dims()
            if len(dims) == 2 and expr.op == "add":
                one, other = dims if expr.args[0].op == "mul" else dims[::-1]
                wrong = ix.dim(other) * program.sizes[one] + ix.dim(one)
                yield changed(block, n, attr=with_index(node.access, axis, wrong))


@mutation
def reads_a_neighbour_in_one_place(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """One of several uses of a tensor reads the next row: another row's maximum or norm."""
    for n, node in of(block, "load"):
        users = [u for u, other in enumerate(block.nodes) if n in other.args]
        for axis, expr in enumerate(node.access.index if len(users) > 1 else ()):
            extent = expr.bounds(program.sizes)[1] + 1
            if extent > 1:
                access = with_index(node.access, axis, (expr + 1) % extent)
                for user in users:
                    wider = inserted(block, user, [Node("load", (), access)])
                    args = tuple(user if a == n else a for a in wider.nodes[user + 1].args)
                    yield changed(wider, user + 1, args=args)


# -- stores ---------------------------------------------------------------------------------------


@graph_mutation
def stores_one_place_further(graph: UGraph) -> Iterator[UGraph]:
    """The next element, the first after the last: rows, columns or splits of another block."""
    for number, n, node, axis, expr in _stored_axes(graph):
        extent = graph.tensors[node.access.tensor].shape[axis]
        access = with_index(node.access, axis, (expr + 1) % extent)
        yield with_node(graph, number, n, replace(node, attr=access))


@graph_mutation
def stores_backwards(graph: UGraph) -> Iterator[UGraph]:
    """The first element last: every element is written once, at another's place."""
    for number, n, node, axis, expr in _stored_axes(graph):
        last = graph.tensors[node.access.tensor].shape[axis] - 1
        access = with_index(node.access, axis, ix.mul(expr, -1) + last)
        yield with_node(graph, number, n, replace(node, attr=access))


@graph_mutation
def stores_with_permuted_indices(graph: UGraph) -> Iterator[UGraph]:
    """A transposed store: a wrong omap."""
    for number, block in blocks(graph):
        for n, node in of(block, *STORES):
            index = node.access.index
            for one in range(len(index)):
                for other in range(one + 1, len(index)):
                    swapped = list(index)
                    swapped[one], swapped[other] = index[other], index[one]
                    access = Access(node.access.tensor, tuple(swapped))
                    yield with_node(graph, number, n, replace(node, attr=access))


@mutation
def stores_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """One tensor is written by two stores, the second with another value; or added to twice."""
    for n, node in of(block, *STORES):
        yield replaced_by(block, n, lambda _, node=node: node)
        doubled = Node("add", (node.args[0], node.args[0]))
        wider = inserted(block, n, [doubled])
        yield replaced_by(wider, n + 1, lambda _, node=node, n=n: replace(node, args=(n,)))


@mutation
def stores_every_other_place(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Holes that nothing fills."""
    for n, node in of(block, *STORES):
        for axis, expr in enumerate(node.access.index):
            if expr.bounds(program.sizes)[1] > 0:
                wrong = expr // 2 * 2
                yield changed(block, n, attr=with_index(node.access, axis, wrong))


# -- masks ----------------------------------------------------------------------------------------


@mutation
def moves_a_window(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """All borders of a mask, one place on."""
    for n, node in of(block, "mask"):
        if isinstance(node.attr, Predicate):
            for step in (-1, 1):
                yield changed(block, n, attr=_moved(node.attr, step))


@mutation
def drops_a_condition(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """One of two conditions, or either for both."""
    for n, node in of(block, "mask"):
        if isinstance(node.attr, Predicate) and len(node.attr.args) == 2:
            for part in node.attr.args:
                yield changed(block, n, attr=part)
            other = {"and": "or", "or": "and"}[node.attr.op]
            yield changed(block, n, attr=Predicate(other, (), node.attr.args))


@mutation
def masks_by_another_dimension(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A condition on the heads for one on the keys."""
    for n, node in of(block, "mask"):
        if isinstance(node.attr, Predicate):
            for d in node.attr.dims():
                for other in program.dim_names:
                    if other != d:
                        yield changed(block, n, attr=node.attr.substitute({d: ix.dim(other)}))


@mutation
def masks_what_is_not_masked(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """The last place of a dimension is zero where something is read."""
    for n, node in of(block, "load"):
        for d in node.dims:
            if program.sizes[d] > 1:
                yield masked(block, n, ix.compare("ne", ix.dim(d), program.sizes[d] - 1))


# -- loops ----------------------------------------------------------------------------------------


@mutation
def accumulates_in_another_loop(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """An accumulator among the nodes of another section."""
    for n, _ in of(block, "accum_sum", "accum_max", "accum_rescaled"):
        for number, section in enumerate(block.sections):
            if n not in section.nodes:
                sections = [
                    replace(s, nodes=tuple(m for m in s.nodes if m != n)) for s in block.sections
                ]
                sections[number] = replace(section, nodes=tuple(sorted((*section.nodes, n))))
                yield replace(block, sections=tuple(s for s in sections if s.nodes))


@mutation
def reads_a_total_too_early(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A running sum inside its own loop, where it is not complete."""
    for n, node in of(block, "accum_sum", "accum_rescaled"):
        inside = block.sections[block.section_of[n]].nodes
        for user in (u for u in inside if u > n):
            for place, argument in enumerate(block.nodes[user].args):
                if block.nodes[argument].dims == node.dims and argument != n:
                    old = block.nodes[user].args
                    yield changed(block, user, args=(*old[:place], n, *old[place + 1 :]))


@mutation
def accumulates_twice(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Every iteration adds its part twice."""
    for n, node in of(block, "accum_sum", "accum_rescaled"):
        value = node.args[0]
        wider = inserted(block, n, [Node("add", (value, value))])
        yield changed(wider, n + 1, args=(n, *wider.nodes[n + 1].args[1:]))


@graph_mutation
def loses_a_loop(graph: UGraph) -> Iterator[UGraph]:
    """The body of a loop runs once, over everything, and its accumulators with it."""
    for number, block in blocks(graph):
        for place, section in enumerate(block.sections):
            if section.loop:
                sections = list(block.sections)
                sections[place] = replace(section, loop=None, tile=None)
                yield with_kernel(graph, number, replace(block, sections=tuple(sections)))


# -- inside ---------------------------------------------------------------------------------------


def _tiles(block: BlockGraph) -> dict[str, int]:
    tiles = {a.dim: a.tile or 1 for a in block.grid}
    return tiles | {s.loop: s.tile or 1 for s in block.sections if s.loop}


def _stored_axes(graph: UGraph) -> Iterator[tuple[int, int, Node, int, IndexExpr]]:
    """Kernel, position and node of every store, with each axis that has more than one place."""
    for number, block in blocks(graph):
        for n, node in of(block, *STORES):
            for axis, expr in enumerate(node.access.index):
                if graph.tensors[node.access.tensor].shape[axis] > 1:
                    yield number, n, node, axis, expr


def _moved(predicate: Predicate, step: int) -> Predicate:
    if predicate.exprs:
        left, right = predicate.exprs
        return Predicate(predicate.op, (left, right + step))
    return Predicate(predicate.op, (), tuple(_moved(p, step) for p in predicate.args))
