"""Operands of tensor cores in float16, kept inside its range.

The product of two float16 inputs, x g, reaches 4e9 where float16 ends at 65504, and 1e-14 where
its numbers end at 6e-8. A norm that divides after the product, sum(x g w) / |x|, is finite and so
is eager PyTorch, which divides first. So g, where it has the contracted dimension alone, is
divided by its largest magnitude m on the way into the product, and sums of it are multiplied by m
again:

    sum(x g w)  ->  m sum(x (g / m) w)         |x (g / m)| <= |x|

It costs a pass over a vector in front of the loop. bfloat16 has the range of float32.
"""

from __future__ import annotations

from dataclasses import replace

from mirage_py.codegen.tiles import Tiling
from mirage_py.ugraph.dtypes import F16
from mirage_py.ugraph.program import Program, Tensor
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block
from mirage_py.ugraph.ugraph import BlockGraph, Section

# Below the smallest number of float16: a vector of zeros is divided by it.
_SMALLEST = 2.0**-25
# What a factor of its operand goes through.
_LINEAR = ("sum", "matmul", "accum_sum")


def within_half_range(
    program: Program, block: BlockGraph, tensors: dict[str, Tensor]
) -> BlockGraph:
    """The block graph with such vectors scaled; positions of nodes change."""
    vectors = _vectors(program, block, tensors)
    return _Scaled(block, vectors).built() if vectors else block


def _vectors(program: Program, block: BlockGraph, tensors: dict[str, Tensor]) -> dict[int, int]:
    """Products of two float16 loads that feed tensor cores: the load that is a vector."""
    tiling = Tiling(program, block)
    found: dict[int, int] = {}
    for number, node in enumerate(block.nodes):
        if node.op != "matmul" or not tiling.is_dot(number):
            continue
        for argument in node.args:
            product = block.nodes[argument]
            if product.op != "mul" or not all(_is_half(block, a, tensors) for a in product.args):
                continue
            for load in product.args:
                if set(block.nodes[load].dims) == set(node.reduced):
                    found[argument] = load
    return found


def _is_half(block: BlockGraph, number: int, tensors: dict[str, Tensor]) -> bool:
    node = block.nodes[number]
    return node.op == "load" and tensors[node.access.tensor].dtype == F16


class _Scaled:
    def __init__(self, block: BlockGraph, vectors: dict[int, int]) -> None:
        self.block, self.vectors = block, vectors
        # Load of a vector -> its largest magnitude, and the reciprocal, among the new nodes.
        self.largest: dict[int, tuple[int, int]] = {}
        # Nodes that are smaller by the largest magnitude of a vector: {node: load}.
        self.smaller: dict[int, int] = {}

    def built(self) -> BlockGraph:
        """The block graph with a section in front that looks at the vectors."""
        sections = self.block.sections
        if sections[0].loop is not None:
            sections = (Section(()), *sections)
        return rebuild_block(replace(self.block, sections=sections), self._rule, self._measure)

    def _measure(self, new: NewNodes) -> None:
        for load in dict.fromkeys(self.vectors.values()):
            node = self.block.nodes[load]
            vector = new.add("load", (), node.attr, node.dims)
            size = new.add("abs", (vector,), None, node.dims)
            largest = new.add("max", (size,), node.dims)
            safe = new.add("maximum", (largest, new.add("const", (), _SMALLEST)))
            inverse = new.add("div", (new.add("const", (), 1.0), safe))
            self.largest[load] = safe, inverse

    def _rule(self, new: NewNodes, number: int) -> int:
        node = self.block.nodes[number]
        if number in self.vectors:
            load = self.vectors[number]
            vector = self.block.nodes[load]
            scaled = new.add("mul", (new.place[load], self.largest[load][1]), None, vector.dims)
            half = new.add("cast", (scaled,), F16, vector.dims)
            self.smaller[number] = load
            return new.copy(number, {load: half})
        loads = [self.smaller[a] for a in node.args if a in self.smaller]
        if loads and node.op in _LINEAR and len(loads) == 1:
            self.smaller[number] = loads[0]
            return new.copy(number)
        return new.copy(number, {a: self._whole(new, a) for a in node.args if a in self.smaller})

    def _whole(self, new: NewNodes, number: int) -> int:
        largest = self.largest[self.smaller[number]][0]
        dims = self.block.nodes[number].dims
        return new.add("mul", (new.place[number], largest), None, dims)
