"""Makes exponentials safe: every exp whose scale cancels is shifted by a (running) maximum.

In search a softmax is exp(x) / sum(exp(x)). Here each such exp becomes exp(x - m). Multiplying
exp(x) by any factor exp(-m) that the later reductions do not see scales every value downstream by a
known power of that factor, its degree; if the degree of every output is 0 the factor cancels and
any m is legal, so m may be the maximum. Inside a loop over the reduced dimension m is the running
maximum, and the sums that carry a degree are rescaled when it moves (Milakov and Gimelshein 2018;
the FlashAttention recurrence falls out). The field test of the result uses a free random m: it is
verified, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mirage_py.ugraph.node import Attr, Node
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT, Degrees, ExpGroup, shiftable_exps
from mirage_py.ugraph.ugraph import BlockGraph, Section, UGraph


def stabilize(ugraph: UGraph) -> UGraph:
    """The µGraph with every exp whose scale cancels shifted by the maximum of its argument."""
    kernels = tuple(_stabilize_block(k) if isinstance(k, BlockGraph) else k for k in ugraph.kernels)
    return replace(ugraph, kernels=kernels)


def _stabilize_block(block: BlockGraph) -> BlockGraph:
    groups, degrees = shiftable_exps(block.nodes, [n for n, _ in block.stores()])
    return _Rewriter(block, groups, degrees).run() if groups else block


class _Rewriter:
    """Copies a block graph section by section, inserting shifts and rescaled accumulators."""

    def __init__(
        self, block: BlockGraph, groups: Iterable[ExpGroup], degrees: list[Degrees]
    ) -> None:
        self.block = block
        self.group_of = {n: g for g in groups for n in g.nodes}
        self.degrees = degrees
        self.nodes: list[Node] = []
        self.map: dict[int, int] = {}
        # Group -> the accumulator that holds its maximum, and the loop section it runs in.
        self.maxima: dict[str, tuple[int, int]] = {}

    def run(self) -> BlockGraph:
        sections = []
        for number, section in enumerate(self.block.sections):
            first = len(self.nodes)
            for node in section.nodes:
                self._copy(node, number, section)
            sections.append(replace(section, nodes=tuple(range(first, len(self.nodes)))))
        return replace(self.block, nodes=tuple(self.nodes), sections=tuple(sections), threads=())

    def _add(self, op: str, args: tuple[int, ...], attr: Attr, dims: Iterable[str]) -> int:
        self.nodes.append(Node(op, args, attr, tuple(dims)))
        return len(self.nodes) - 1

    def _copy(self, number: int, section_number: int, section: Section) -> None:
        node = self.block.nodes[number]
        if number in self.map:  # a mask that a shift needed before its place
            return
        args = tuple(self.map[a] for a in node.args)
        group = self.group_of.get(number)
        if group is not None:
            shift = self._shift(group, number, args[0], section_number, section)
            shifted = self._add("sub", (args[0], shift), None, node.dims)
            self.map[number] = self._add("exp", (shifted,), None, node.dims)
            return
        if node.op == "accum_sum":
            moving = {
                k: d
                for k, d in self.degrees[number].items()
                if k in self.maxima and self.maxima[k][1] == section_number
            }
            if moving:
                powers = tuple(int(d) for d in moving.values())
                state = (*args, *(self.maxima[k][0] for k in moving))
                self.map[number] = self._add("accum_rescaled", state, powers, node.dims)
                return
        self.map[number] = self._add(node.op, args, node.attr, node.dims)

    def _shift(
        self, group: ExpGroup, number: int, argument: int, section_number: int, section: Section
    ) -> int:
        if group.key in self.maxima:
            return self.maxima[group.key][0]
        dims = self.block.nodes[number].dims
        kept = tuple(d for d in dims if d not in group.reduced)
        masked = self._masked(number, argument)
        top = self._add("max", (masked,), group.reduced, kept)
        if section.loop in group.reduced:
            top = self._add("accum_max", (top,), "shift", kept)
            self.maxima[group.key] = (top, section_number)
            return top
        return self._add("shift", (top,), None, kept)

    def _masked(self, number: int, argument: int) -> int:
        """The argument of an exp, lowered where every consumer masks the exp away."""
        block = self.block
        users = [n for n in block.nodes if number in n.args]
        masks = {
            other
            for user in users
            for other in user.args
            if user.op == "mul" and block.nodes[other].op == "mask"
        }
        if len(masks) != 1 or any(u.op != "mul" for u in users):
            return argument
        (mask,) = masks
        if mask not in self.map:
            # The mask comes later in the text: a leaf, it may as well come here.
            leaf = block.nodes[mask]
            self.map[mask] = self._add(leaf.op, (), leaf.attr, leaf.dims)
        low = self._add("const", (), LOWEST_SHIFT, ())
        dims = block.nodes[number].dims
        return self._add("where", (self.map[mask], argument, low), None, dims)
