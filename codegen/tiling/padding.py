"""Padding: whether a reduction must mask the padding of its operand.

Loads fill padding with 0. A sum over a dimension whose operand is 0 there needs no mask; any other
operand is masked to the reduction's neutral element first.
"""

from __future__ import annotations

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import named

# f(0) = 0
KEEPS_ZERO = named(lambda o: o.keeps_zero)


class Padding:
    """Answers, for one block graph, what a value is in the padding of a dimension."""

    def __init__(self, tiling: Tiling, block: BlockGraph) -> None:
        self.tiling = tiling
        self.block = block
        self._memo: dict[tuple[int, str], bool] = {}

    def is_zero(self, number: int, dim: str) -> bool:
        """Whether the value is 0 at every padded position of ``dim``."""
        key = (number, dim)
        if key not in self._memo:
            self._memo[key] = self._is_zero(number, dim)
        return self._memo[key]

    def _is_zero(self, number: int, dim: str) -> bool:
        node = self.block.nodes[number]
        if dim not in node.dims:
            return False
        if node.op == "load":
            return True
        if node.op in (*KEEPS_ZERO, "sum", "max", "accum_sum"):
            return self.is_zero(node.args[0], dim)
        if node.op in ("add", "sub", "maximum", "minimum"):
            return all(self.is_zero(a, dim) for a in node.args)
        if node.op == "mul":
            left, right = node.args
            return self._product_is_zero(left, right, dim)
        if node.op == "div":
            # 0 over a value that does not vary along dim: the lane is 0 wherever the data's own
            # lanes are finite.
            numerator, denominator = node.args
            return self.is_zero(numerator, dim) and dim not in self.block.nodes[denominator].dims
        if node.op == "matmul":
            return any(self.is_zero(a, dim) for a in node.args)
        return False

    def _product_is_zero(self, left: int, right: int, dim: str) -> bool:
        for one, other in ((left, right), (right, left)):
            # 0 * infinity is not 0: the other factor must be 0 too, or the same in every lane.
            harmless = dim not in self.block.nodes[other].dims or self.is_zero(other, dim)
            if self.is_zero(one, dim) and harmless:
                return True
        return False
