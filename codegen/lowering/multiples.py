"""Magnitude bounds of values computed from float16 inputs, in multiples of the largest input.

With M the largest magnitude of an input: x is one M, x less the mean of x at most two, the sum of n
of them n. A product with another input, or the result of a function, has no bound here.
"""

from __future__ import annotations

from math import prod

from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph

# What is as large as its first operand.
_AS_LARGE = ("neg", "abs", "relu", "max", "accum_max", "cast")


class Multiples:
    """``inputs`` has for each node how many times the largest input its values may be; 0 where that
    is not known.
    """

    def __init__(self, program: Program, block: BlockGraph, tensors: dict[str, Tensor]) -> None:
        self._sizes, self._block, self._tensors = program.sizes, block, tensors
        # Values that are the same whatever the inputs are.
        self._numbers: dict[int, float] = {}
        self.inputs: list[float] = []
        for number, node in enumerate(block.nodes):
            self._note_number(number, node)
            self.inputs.append(self._of(number, node))

    def is_half(self, number: int) -> bool:
        """Whether a value is read as float16."""
        node = self._block.nodes[number]
        return node.op == "load" and self._tensors[node.access.tensor].dtype == F16

    def _note_number(self, number: int, node: Node) -> None:
        known = [self._numbers[a] for a in node.args if a in self._numbers]
        if isinstance(node.attr, float) and node.op == "const":
            self._numbers[number] = node.attr
        elif node.op == "size":
            self._numbers[number] = float(self._sizes[str(node.attr)])
        elif node.op in ("mul", "div") and len(known) == 2 and known[1]:
            x, y = known
            self._numbers[number] = x * y if node.op == "mul" else x / y

    def _of(self, number: int, node: Node) -> float:
        have = [self.inputs[a] for a in node.args]
        if node.op == "load":
            return float(self.is_half(number))
        if node.op in ("add", "sub"):
            return sum(have) if all(have) else 0.0
        if node.op in _AS_LARGE:
            return have[0]
        if node.op in ("sum", "accum_sum"):
            return have[0] * self._terms(number, node)
        if node.op in ("mul", "div"):
            x, y = node.args if node.args[1] in self._numbers else node.args[::-1]
            by = abs(self._numbers.get(y, 0.0))
            if node.op == "mul" or not by:
                return self.inputs[x] * by
            return self.inputs[x] / by if y == node.args[1] else 0.0
        return 0.0

    def _terms(self, number: int, node: Node) -> int:
        section = self._block.sections[self._block.section_of[number]]
        if node.op == "accum_sum" and section.loop is not None:
            return -(-self._sizes[section.loop] // (section.tile or 1))
        grid = (axis for axis in self._block.grid if not axis.cluster)
        tiles = {axis.dim: axis.tile or 1 for axis in grid}
        if section.loop is not None:
            tiles[section.loop] = section.tile or 1
        return prod(min(self._sizes[d], tiles.get(d, self._sizes[d])) for d in node.reduced)
