"""Strength reduction on a block graph, before types and text.

Each rewrite keeps the value up to rounding in float32:

    x / sqrt(u)  ->  x * rsqrt(u)
    x / y        ->  x * (1 / y)     where y has fewer dimensions than x: one division a row
"""

from __future__ import annotations

from dataclasses import replace

from mirage_py.ugraph.node import STORES, Node
from mirage_py.ugraph.ugraph import BlockGraph, Section


def reduce_strength(block: BlockGraph) -> BlockGraph:
    """The block graph with cheaper operators; positions of nodes change."""
    return _Rewriter(block).run()


class _Rewriter:
    def __init__(self, block: BlockGraph) -> None:
        self.block = block
        self.nodes: list[Node] = []
        self.map: dict[int, int] = {}
        # (divisor, section) -> its reciprocal or reciprocal root among the new nodes
        self.inverse: dict[tuple[int, int], int] = {}

    def run(self) -> BlockGraph:
        sections = []
        for number, section in enumerate(self.block.sections):
            first = len(self.nodes)
            for position in section.nodes:
                self._copy(position, number)
            sections.append(replace(section, nodes=tuple(range(first, len(self.nodes)))))
        nodes, kept = _without_dead(self.nodes, sections)
        return replace(self.block, nodes=nodes, sections=tuple(kept), threads=())

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _copy(self, position: int, section: int) -> None:
        node = self.block.nodes[position]
        args = tuple(self.map[a] for a in node.args)
        if node.op == "div":
            divisor = self.block.nodes[node.args[1]]
            fewer = set(divisor.dims) < set(self.block.nodes[node.args[0]].dims)
            if divisor.op == "sqrt" or (fewer and divisor.dims):
                inverse = self._inverse(node.args[1], section)
                self.map[position] = self._add(Node("mul", (args[0], inverse), None, node.dims))
                return
        self.map[position] = self._add(replace(node, args=args))

    def _inverse(self, divisor: int, section: int) -> int:
        """1 / divisor, computed once where the divisor is made, or here after its loop."""
        key = (divisor, section)
        if key not in self.inverse:
            node = self.block.nodes[divisor]
            if node.op == "sqrt":
                new = Node("rsqrt", (self.map[node.args[0]],), None, node.dims)
            else:
                one = self._add(Node("const", (), 1.0, ()))
                new = Node("div", (one, self.map[divisor]), None, node.dims)
            self.inverse[key] = self._add(new)
        return self.inverse[key]


def _without_dead(
    nodes: list[Node], sections: list[Section]
) -> tuple[tuple[Node, ...], list[Section]]:
    """Nodes that no store needs go; args are positions among ``nodes`` and always earlier."""
    live = [n.op in STORES for n in nodes]
    for number in range(len(nodes) - 1, -1, -1):
        if live[number]:
            for argument in nodes[number].args:
                live[argument] = True
    place = {}
    kept: list[Node] = []
    for number, node in enumerate(nodes):
        if live[number]:
            place[number] = len(kept)
            kept.append(replace(node, args=tuple(place[a] for a in node.args)))
    moved = [replace(s, nodes=tuple(place[n] for n in s.nodes if n in place)) for s in sections]
    return tuple(kept), moved
