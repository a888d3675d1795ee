"""Factors of a matmul's tile: a scale of blocks as one number for a tile, and scales multiplied
with each other before the tile is.

``S[n // 128, g]`` is the same for all of a tile of at most 128 columns, so it is loaded once and
not for each column. The partial sums of a group of K are then multiplied by one product of scales a
row, in place of two multiplications an element:

    S[n // 128, g] * (A[m, g] * sum[r](...))  ->  (S[...] * A[m, g]) * sum[r](...)
"""

from __future__ import annotations

from functools import reduce

from mirage_py.codegen.tiling.contiguity import steps_along
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import ELEMENTWISE, operator
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block, without_unread


def with_tile_factors(program: Program, block: BlockGraph) -> BlockGraph:
    """The tiled block graph with both; positions of nodes change where there is any.

    A product of factors is rounded in float32 as it was, in another order.
    """
    narrow = _with_uniform_loads(program, block)
    return _with_scales_first(program, narrow)


def _with_uniform_loads(program: Program, block: BlockGraph) -> BlockGraph:
    """Loads without the dimensions along which all of their tile is one element."""
    tiling = Tiling(program, block)
    found = {n: dims for n in range(len(block.nodes)) if (dims := _uniform(tiling, n))}
    if not found:
        return block

    def rule(new: NewNodes, number: int) -> int:
        node = block.nodes[number]
        if number in found:
            kept = tuple(d for d in node.dims if d not in found[number])
            return new.add(node.op, (), node.attr, kept)
        place = new.copy(number)
        if operator(node.op).kind == ELEMENTWISE:
            spanned = {d for a in new.nodes[place].args for d in new.nodes[a].dims}
            made = new.nodes[place]
            new.nodes[place] = Node(
                made.op, made.args, made.attr, tuple(d for d in made.dims if d in spanned)
            )
        return place

    return rebuild_block(block, rule)


def _uniform(tiling: Tiling, number: int) -> tuple[str, ...]:
    """The dimensions along which a load's position is the same all over a tile."""
    node, section = tiling.block.nodes[number], tiling.block.section_of[number]
    if node.op != "load" or node.access.is_look_up:
        return ()
    return tuple(
        d for d in tiling.live(node.dims, section)
        if all(steps_along(e, d, tiling.padded(d, section))[0] == 0 for e in node.access.index)
    )  # fmt: skip


def _with_scales_first(program: Program, block: BlockGraph) -> BlockGraph:
    """Products of a matmul and several factors with these multiplied first, where they have fewer
    dimensions together.
    """
    found = _Scaled(Tiling(program, block)).found
    if not found:
        return block

    def rule(new: NewNodes, number: int) -> int:
        if number not in found:
            return new.copy(number)
        matmul, factors = found[number]

        def times(left: int, right: int) -> int:
            dims = {d for n in (left, right) for d in new.nodes[n].dims}
            kept = tuple(d for d in block.nodes[number].dims if d in dims)
            return new.add("mul", (left, right), None, kept)

        return times(reduce(times, [new.place[f] for f in factors]), new.place[matmul])

    return without_unread(rebuild_block(block, rule))


class _Scaled:
    """``found``: of each product of a matmul and two factors or more, the matmul and these."""

    def __init__(self, tiling: Tiling) -> None:
        self.tiling = tiling
        self.nodes = tiling.block.nodes
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for argument in node.args:
                self.users[argument].append(number)
        self.found: dict[int, tuple[int, tuple[int, ...]]] = {}
        for number, node in enumerate(self.nodes):
            if node.op == "mul" and not self._goes_on(number):
                self._add(number)

    def _section(self, number: int) -> int:
        return self.tiling.block.section_of[number]

    def _goes_on(self, number: int) -> bool:
        """Whether a product is nothing but a factor of another one of its section."""
        users = self.users[number]
        is_factor = len(users) == 1 and self.nodes[users[0]].op == "mul"
        return is_factor and self._section(users[0]) == self._section(number)

    def _leaves(self, number: int) -> list[int]:
        found = []
        for argument in self.nodes[number].args:
            inner = self.nodes[argument].op == "mul" and self._goes_on(argument)
            found += self._leaves(argument) if inner else [argument]
        return found

    def _add(self, number: int) -> None:
        leaves = self._leaves(number)
        matmuls = [n for n in leaves if self.nodes[n].op == "matmul"]
        scales = tuple(n for n in leaves if n not in matmuls)
        are_loads = all(self.nodes[n].op == "load" for n in scales)
        if len(matmuls) != 1 or len(scales) < 2 or not are_loads:
            return
        section = self._section(number)
        dims = {d for n in scales for d in self.nodes[n].dims}
        of_scales = self.tiling.elements(tuple(dims), section)
        if of_scales < self.tiling.elements(self.nodes[number].dims, section):
            self.found[number] = matmuls[0], scales
