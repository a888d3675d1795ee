"""Cuts and splices in block graphs, the building blocks of mutations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, Section, UGraph
from mirage_py.ugraph.operators import EFFECT, operator


def changed(block: BlockGraph, position: int, **what: object) -> BlockGraph:
    nodes = list(block.nodes)
    nodes[position] = replace(nodes[position], **what)  # type: ignore[arg-type]
    return replace(block, nodes=tuple(nodes))


def of(block: BlockGraph, *ops: str) -> Iterator[tuple[int, Node]]:
    return ((n, node) for n, node in enumerate(block.nodes) if node.op in ops)


def same_dims(block: BlockGraph, argument: int, before: int) -> list[int]:
    """Other values with the same dimensions that come before ``before``."""
    dims = block.nodes[argument].dims
    return [
        n
        for n, node in enumerate(block.nodes[:before])
        if n != argument and node.dims == dims and operator(node.op).kind != EFFECT
    ]


def bypassed(block: BlockGraph, position: int, kept: int) -> BlockGraph:
    wrong = block
    for user, node in enumerate(block.nodes):
        if position in node.args:
            args = tuple(kept if a == position else a for a in node.args)
            wrong = changed(wrong, user, args=args)
    return wrong


def with_index(access: Access, axis: int, expr: IndexExpr) -> Access:
    return Access(access.tensor, (*access.index[:axis], expr, *access.index[axis + 1 :]))


def blocks(graph: UGraph) -> list[tuple[int, BlockGraph]]:
    return [(n, k) for n, k in enumerate(graph.kernels) if isinstance(k, BlockGraph)]


def with_kernel(graph: UGraph, number: int, kernel: Kernel) -> UGraph:
    kernels = (*graph.kernels[:number], kernel, *graph.kernels[number + 1 :])
    return replace(graph, kernels=kernels)


def with_node(graph: UGraph, number: int, position: int, node: Node) -> UGraph:
    block = graph.kernels[number]
    assert isinstance(block, BlockGraph)
    dims = tuple(d for d in graph.program.dim_names if d in node.access.dims())
    nodes = list(block.nodes)
    nodes[position] = replace(node, dims=dims)
    return with_kernel(graph, number, replace(block, nodes=tuple(nodes)))


def inserted(block: BlockGraph, before: int, new: list[Node]) -> BlockGraph:
    """The block with nodes inserted before one, into its section; their operands are old ones, or
    new ones as they are numbered then.
    """
    count = len(new)

    def moved(n: int) -> int:
        return n if n < before else n + count

    nodes = [replace(n, args=tuple(map(moved, n.args))) for n in block.nodes]
    sections: list[Section] = []
    for section in block.sections:
        places: list[int] = []
        for n in section.nodes:
            places += [*range(before, before + count), moved(n)] if n == before else [moved(n)]
        sections.append(replace(section, nodes=tuple(places)))
    nodes[before:before] = new
    return replace(block, nodes=tuple(nodes), sections=tuple(sections), threads=())


def masked(block: BlockGraph, load: int, predicate: Predicate) -> BlockGraph:
    """What is read, multiplied by a mask."""
    after = load + 1
    mask = Node("mask", (), predicate)
    wider = inserted(block, after, [mask, Node("mul", (load, after))])
    for user, node in enumerate(wider.nodes):
        if load in node.args and user > after + 1:
            args = tuple(after + 1 if a == load else a for a in node.args)
            wider = changed(wider, user, args=args)
    return wider


def replaced_by(block: BlockGraph, position: int, made: Callable[[int], Node]) -> BlockGraph:
    """A node after one, built from its position, for all users."""
    after = position + 1
    users = [u for u, node in enumerate(block.nodes) if position in node.args]
    section = block.sections[block.section_of[position]]
    nodes = [replace(n, args=tuple(_shifted(a, after) for a in n.args)) for n in block.nodes]
    for user in users:
        args = tuple(after if a == position else a for a in nodes[user].args)
        nodes[user] = replace(nodes[user], args=args)
    nodes.insert(after, made(position))
    sections: list[Section] = []
    for other in block.sections:
        places = [_shifted(n, after) for n in other.nodes]
        if other is section:
            places.insert(places.index(position) + 1, after)
        sections.append(replace(other, nodes=tuple(places)))
    return replace(block, nodes=tuple(nodes), sections=tuple(sections), threads=())


def _shifted(n: int, after: int) -> int:
    return n if n < after else n + 1
