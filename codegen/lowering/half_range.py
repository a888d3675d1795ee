"""Float16 operands of tensor cores, scaled to stay in range.

The product of two float16 inputs, x g, reaches 4e9 where float16 ends at 65504, and 1e-14 where
its numbers end at 6e-8. A norm that divides after the matmul, sum(x g w) / |x|, is finite, and so
is eager PyTorch, which divides first. So g, where it has only the contracted dimension, or only a
block's part of others, is divided by its largest magnitude m before the matmul, and the sums are
multiplied by m again:

    sum(x g w)  ->  m sum(x (g / m) w)         |x (g / m)| <= |x|

What stands for x may be computed: made of k inputs by sums, differences, means and the like it is
as large as k of them together, and then m is k times as large. x less its mean has k = 2.

It costs a pass over a vector before the loop. bfloat16 has the range of float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log2

from mirage_py.codegen.lowering.multiples import Multiples
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block

# Below the smallest number of float16: a vector of zeros is divided by it.
_SMALLEST = 2.0**-25
# What a factor of its operand goes through.
_LINEAR = ("sum", "matmul", "accum_sum")
# Beyond, float16 would have more to lose at its other end.
_MOST_INPUTS = 4.0


def within_half_range(
    program: Program, block: BlockGraph, tensors: dict[str, Tensor]
) -> BlockGraph:
    """The block graph with such vectors scaled; positions of nodes change."""
    vectors = _vectors(program, block, tensors)
    return _Scaled(block, vectors).built() if vectors else block


@dataclass(frozen=True, slots=True)
class _Vector:
    """A load that is a factor of a product, what is contracted of it, and how many inputs the other
    factor is as large as.
    """

    load: int
    reduced: tuple[str, ...]
    inputs: float
    is_half: bool


def _vectors(program: Program, block: BlockGraph, tensors: dict[str, Tensor]) -> dict[int, _Vector]:
    """Products that feed tensor cores and have a vector of float16 for a factor."""
    if all(t.dtype != F16 for t in tensors.values()):
        return {}
    tiling, known = Tiling(program, block), Multiples(program, block, tensors)
    blocks = [axis.dim for axis in block.grid]
    found: dict[int, _Vector] = {}
    for number, node in enumerate(block.nodes):
        if node.op != "matmul" or not tiling.is_dot(number) or not _in_half(block, number, tensors):
            continue
        for argument in node.args:
            product = block.nodes[argument]
            if product.op != "mul":
                continue
            for load, other in zip(product.args, product.args[::-1], strict=True):
                dims = set(block.nodes[load].dims)
                is_vector = set(node.reduced) <= dims <= {*node.reduced, *blocks}
                inputs = known.inputs[other]
                if is_vector and known.is_half(load) and 0.0 < inputs <= _MOST_INPUTS:
                    found[argument] = _Vector(load, node.reduced, inputs, known.is_half(other))
    return found


def _in_half(block: BlockGraph, matmul: int, tensors: dict[str, Tensor]) -> bool:
    """Whether tensor cores take its operands as float16: those that are read, else all are."""
    loads = [n for a in block.nodes[matmul].args if (n := block.nodes[a]).op == "load"]
    read = loads or [n for _, n in block.loads()]
    return all(tensors[n.access.tensor].dtype == F16 for n in read)


class _Scaled:
    def __init__(self, block: BlockGraph, vectors: dict[int, _Vector]) -> None:
        self.block, self.vectors = block, vectors
        # Load of a vector -> its largest magnitude, and the reciprocal, among the new nodes.
        self.largest: dict[int, tuple[int, int]] = {}
        # Load -> the dimensions of that magnitude: each block of a cluster has its own.
        self.kept: dict[int, tuple[str, ...]] = {}
        # Nodes that are smaller by the largest magnitude of a vector: {node: load}.
        self.smaller: dict[int, int] = {}

    def built(self) -> BlockGraph:
        """The block graph with a section in front that looks at the vectors."""
        sections = self.block.sections
        if sections[0].loop is not None:
            sections = (Section(()), *sections)
        return rebuild_block(replace(self.block, sections=sections), self._rule, self._measure)

    def _measure(self, new: NewNodes) -> None:
        loads = dict.fromkeys(v.load for v in self.vectors.values())
        for load in loads:
            node = self.block.nodes[load]
            same = [v for v in self.vectors.values() if v.load == load]
            inputs = max(v.inputs for v in same)
            reduced = tuple(d for d in node.dims if any(d in v.reduced for v in same))
            kept = tuple(d for d in node.dims if d not in reduced)
            vector = new.add("load", (), node.attr, node.dims)
            size = new.add("abs", (vector,), None, node.dims)
            largest = new.add("max", (size,), reduced, kept)
            safe = new.add("maximum", (largest, new.add("const", (), _SMALLEST)), None, kept)
            if inputs > 1.0:
                # By a power of two: nothing is rounded.
                times = new.add("const", (), 2.0 ** ceil(log2(inputs)))
                safe = new.add("mul", (safe, times), None, kept)
            inverse = new.add("div", (new.add("const", (), 1.0), safe), None, kept)
            self.largest[load], self.kept[load] = (safe, inverse), kept

    def _rule(self, new: NewNodes, number: int) -> int:
        node = self.block.nodes[number]
        if number in self.vectors:
            load = self.vectors[number].load
            vector = self.block.nodes[load]
            scaled = new.add("mul", (new.place[load], self.largest[load][1]), None, vector.dims)
            if self.vectors[number].is_half:  # so that the product may be one of halves
                scaled = new.add("cast", (scaled,), F16, vector.dims)
            self.smaller[number] = load
            return new.copy(number, {load: scaled})
        loads = [self.smaller[a] for a in node.args if a in self.smaller]
        if len(loads) == 1 and node.op in _LINEAR and {*self.kept[loads[0]]} <= {*node.dims}:
            self.smaller[number] = loads[0]
            return new.copy(number)
        return new.copy(number, {a: self._whole(new, a) for a in node.args if a in self.smaller})

    def _whole(self, new: NewNodes, number: int) -> int:
        largest = self.largest[self.smaller[number]][0]
        dims = self.block.nodes[number].dims
        return new.add("mul", (new.place[number], largest), None, dims)
