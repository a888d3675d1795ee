"""A block graph with tiles, measured out: what the model asks of it under every launch option."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from mirage_py.codegen.axis_order import REVERSED
from mirage_py.codegen.deferral import deferred_sums
from mirage_py.codegen.tiles import Tiling
from mirage_py.ugraph.node import Node
from mirage_py.ugraph.operators import EFFECT, operator
from mirage_py.ugraph.plan import LaunchOptions

# What crosses the bus for one element out of line.
_SECTOR_BYTES = 32


class TiledKernel:
    """One tiling; ranking asks for the same things under many launch options.

    ``order`` is the natural order of tile axes, which no tile changes.
    """

    def __init__(self, tiling: Tiling, order: tuple[str, ...]) -> None:
        self.tiling = tiling
        self.order = order
        self.block = tiling.block
        self.scope = tiling.program
        section_of = self.block.section_of
        self.elements = tuple(
            tiling.elements(n.dims, s) for n, s in zip(self.block.nodes, section_of, strict=True)
        )
        self.dots = tuple(
            i for i, n in enumerate(self.block.nodes) if n.op == "matmul" and tiling.is_dot(i)
        )
        self.operands = frozenset(a for d in self.dots for a in self.block.nodes[d].args)
        self._deferred: dict[int, Mapping[int, int]] = {}

    def deferred(self, num_warps: int) -> Mapping[int, int]:
        """Sums that wait for the end of their loop: {sum: accumulator}."""
        if num_warps not in self._deferred:
            self._deferred[num_warps] = deferred_sums(
                self.block, self.tiling, LaunchOptions(num_warps)
            )
        return self._deferred[num_warps]

    def rows(self, dot: int, order: str) -> int:
        """Rows of a product under an order of axes, natural or reversed."""
        return self._sides[dot][order == REVERSED]

    @cached_property
    def _sides(self) -> Mapping[int, tuple[int, int]]:
        sides = {}
        for dot in self.dots:
            section = self.block.section_of[dot]
            roles = self.tiling.roles(dot)
            rows, columns = roles.left, roles.right
            if self.order.index(columns[0]) < self.order.index(rows[0]):
                rows, columns = columns, rows
            sides[dot] = self.tiling.elements(rows, section), self.tiling.elements(columns, section)
        return sides

    def products(self, number: int) -> int:
        """Multiplications of the matmul at ``number`` in one tile."""
        left, right = (self.block.nodes[a].dims for a in self.block.nodes[number].args)
        return self.tiling.elements(
            self.scope.order((*left, *right)), self.block.section_of[number]
        )

    def element_bytes(self, node: Node) -> int:
        """Of the tensor that a load or store names."""
        return self.scope.tensors[node.access.tensor].dtype.bytes

    def traffic_bytes(self, number: int) -> float:
        """What a load or store of a tile moves between the SM and the cache, in whole sectors."""
        node, section = self.block.nodes[number], self.block.section_of[number]
        size = self.element_bytes(node)
        elements = self.tiling.elements(node.access.dims(), section)
        run = self._run(node, section) * size
        return elements * size * max(1.0, min(_SECTOR_BYTES, elements * size) / run)

    def _run(self, node: Node, section: int) -> int:
        """Elements of a tile that lie side by side."""
        tensor = self.scope.tensors[node.access.tensor]
        for expr, stride, extent in zip(
            node.access.index, tensor.element_strides, tensor.shape, strict=True
        ):
            if stride == 1 and extent > 1:
                return self.tiling.elements(expr.dims(), section)
        return 1

    def is_unpacked(self, load: int) -> bool:
        """Whether something else than a product reads what is loaded: it goes into registers."""
        return any(load in n.args and n.op != "matmul" for n in self.block.nodes)


def is_effect(node: Node) -> bool:
    """Whether a node writes to device memory."""
    return operator(node.op).kind == EFFECT
