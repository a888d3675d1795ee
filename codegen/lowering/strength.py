"""Strength reduction on a block graph, before types are assigned.

Each rewrite keeps the value up to rounding in float32:

    x / sqrt(u)  ->  x * rsqrt(u)
    x / y        ->  x * (1 / y)     where y has fewer dimensions than x: one division a row

An operator whose row says what kernels compute it by becomes that.
"""

from __future__ import annotations

from typing import cast

from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import Calls, operator
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block, without_unread


def reduce_strength(block: BlockGraph) -> BlockGraph:
    """The block graph with cheaper operators; positions of nodes change."""
    return without_unread(rebuild_block(block, _Inverses(block).rule))


class _Inverses:
    """Quotients as products with an inverse, which is computed once a section."""

    def __init__(self, block: BlockGraph) -> None:
        self.block = block
        # (divisor, section) -> its reciprocal or reciprocal root among the new nodes
        self.made: dict[tuple[int, int], int] = {}

    def rule(self, new: NewNodes, number: int) -> int:
        """What a node becomes."""
        node = self.block.nodes[number]
        by_others = operator(node.op).lowered
        if by_others is not None:
            calls = Calls(
                lambda op, _, args: new.add(op, args, None, node.dims),
                lambda value: new.add("const", (), float(value)),
            )
            return cast(int, by_others(calls, *(new.place[a] for a in node.args)))
        if node.op != "div" or not self._pays(*node.args):
            return new.copy(number)
        key = (node.args[1], self.block.section_of[number])
        if key not in self.made:
            self.made[key] = self._inverse(new, node.args[1])
        return new.add("mul", (new.place[node.args[0]], self.made[key]), None, node.dims)

    def _pays(self, dividend: int, divisor: int) -> bool:
        by = self.block.nodes[divisor]
        fewer = set(by.dims) < set(self.block.nodes[dividend].dims)
        return by.op == "sqrt" or (fewer and bool(by.dims))

    def _inverse(self, new: NewNodes, divisor: int) -> int:
        node = self.block.nodes[divisor]
        if node.op == "sqrt":
            return new.add("rsqrt", (new.place[node.args[0]],), None, node.dims)
        one = new.add("const", (), 1.0)
        return new.add("div", (one, new.place[divisor]), None, node.dims)
