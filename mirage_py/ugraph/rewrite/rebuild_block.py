"""A copy of a block graph, section by section, with some nodes replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mirage_py.ugraph.ir.node import STORES, Attr, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph


class NewNodes:
    """The nodes of the block graph that is built; ``place`` is where nodes of the old one are."""

    def __init__(self, block: BlockGraph) -> None:
        self.block = block
        self.nodes: list[Node] = []
        self.place: dict[int, int] = {}

    def add(
        self, op: str, args: Sequence[int] = (), attr: Attr = None, dims: tuple[str, ...] = ()
    ) -> int:
        """Append a node, whose operands are positions of new ones."""
        self.nodes.append(Node(op, tuple(args), attr, dims))
        return len(self.nodes) - 1

    def copy(self, number: int, instead: Mapping[int, int] | None = None) -> int:
        """Append an old node over the new ones; ``instead`` has other places of some operands."""
        node, others = self.block.nodes[number], instead or {}
        args = [others[a] if a in others else self.place[a] for a in node.args]
        return self.add(node.op, args, node.attr, node.dims)


# Appends what an old node becomes, and says where that is; None where nothing reads it as it was.
Rule = Callable[[NewNodes, int], int | None]


def rebuild_block(
    block: BlockGraph, rule: Rule, prologue: Callable[[NewNodes], None] = lambda _: None
) -> BlockGraph:
    """The block graph that ``rule`` makes, which sees the nodes in the order of the sections.

    ``prologue`` adds nodes at the start of the first section. Positions change, so that it has no
    thread graphs.
    """
    new = NewNodes(block)
    sections = []
    for number, section in enumerate(block.sections):
        first = len(new.nodes)
        if number == 0:
            prologue(new)
        for node in section.nodes:
            made = rule(new, node)
            if made is not None:
                new.place[node] = made
        sections.append(replace(section, nodes=tuple(range(first, len(new.nodes)))))
    return replace(block, nodes=tuple(new.nodes), sections=tuple(sections), threads=())


def without_unread(block: BlockGraph) -> BlockGraph:
    """The block graph without nodes that no store needs, and without sections of such alone."""
    needed = [n.op in STORES for n in block.nodes]
    for number in reversed(range(len(block.nodes))):
        for argument in block.nodes[number].args if needed[number] else ():
            needed[argument] = True
    read = rebuild_block(block, lambda new, n: new.copy(n) if needed[n] else None)
    return replace(read, sections=tuple(s for s in read.sections if s.nodes))
