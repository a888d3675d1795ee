"""Tile-skipping masks: those of a loop that leave all accumulators unchanged where they are false.

The accumulators then add zeros, or take the maximum with minus infinity, as the block graph shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from mirage_py.codegen.tiling.padding import KEEPS_ZERO
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph

_NEVER: tuple[frozenset[int], float] = (frozenset(), 0.0)


def tile_skipping_masks(block: BlockGraph, section: int, lowest: float = -inf) -> list[Predicate]:
    """Masks of a loop that leave all of its accumulators as they are where they are false.

    ``lowest`` is what a running maximum does not notice. Before it is lowered
    (hidden_constants.py) a block graph has a finite constant there.
    """
    inside = block.sections[section].nodes
    if all(block.nodes[n].op != "mask" for n in inside):
        return []  # ranking asks for every tiling
    state = _Emptied(block, inside, lowest)
    found: frozenset[int] | None = None
    for number in inside:
        node = block.nodes[number]
        if node.op in STORES:
            return []
        if node.op.startswith("accum"):
            neutral = state.neutral[number]
            found = neutral if found is None else found & neutral
    predicates = (block.nodes[n].attr for n in sorted(found or ()))
    return [p for p in predicates if isinstance(p, Predicate)]


class _Emptied:
    """For the nodes of a loop the masks that make them zero, lowest, or, as accumulators, idle."""

    def __init__(self, block: BlockGraph, inside: Sequence[int], lowest: float) -> None:
        self.unnoticed = lowest
        self.nodes = block.nodes
        self.zero: dict[int, frozenset[int]] = {}
        # With the value that it then has.
        self.lowest: dict[int, tuple[frozenset[int], float]] = {}
        self.neutral: dict[int, frozenset[int]] = {}
        for number in inside:
            node = self.nodes[number]
            self.zero[number] = self._zero(number, node)
            self.lowest[number] = self._lowest(node)
            if node.op.startswith("accum"):
                self.neutral[number] = self._neutral(node)

    def _zeros(self, number: int) -> frozenset[int]:
        return self.zero.get(number, frozenset())

    def _zero(self, number: int, node: Node) -> frozenset[int]:
        if node.op == "mask":
            return frozenset((number,))
        if node.op in ("mul", "matmul"):
            return self._zeros(node.args[0]) | self._zeros(node.args[1])
        if node.op in ("add", "sub"):
            return self._zeros(node.args[0]) & self._zeros(node.args[1])
        if node.op in (*KEEPS_ZERO, "sum"):
            return self._zeros(node.args[0])
        if node.op == "where":
            condition, chosen, other = node.args
            both = self._zeros(chosen) & self._zeros(other)
            is_zero = self._constant(other) == 0.0
            return both | (self._zeros(condition) if is_zero else frozenset())
        return frozenset()

    def _lowest(self, node: Node) -> tuple[frozenset[int], float]:
        """Which masks make it a constant that is very low, and that constant."""
        if node.op == "where":
            low = self._constant(node.args[2])
            return self._zeros(node.args[0]), 0.0 if low is None else low
        if node.op in ("max", "cast"):
            return self.lowest.get(node.args[0], _NEVER)
        if node.op == "mul" and (factor := self._constant(node.args[1])) is not None:
            masks, low = self.lowest.get(node.args[0], _NEVER)
            return masks, low * factor
        return _NEVER

    def _neutral(self, node: Node) -> frozenset[int]:
        if node.op == "accum_sum":
            return self._zeros(node.args[0])
        if node.op == "accum_max" and node.attr == "shift":
            masks, low = self.lowest.get(node.args[0], _NEVER)
            return masks if low <= self.unnoticed else frozenset()
        if node.op == "accum_rescaled":
            peak = self.neutral.get(node.args[1], frozenset())
            return self._zeros(node.args[0]) & peak
        return frozenset()

    def _constant(self, number: int) -> float | None:
        node = self.nodes[number]
        return node.attr if node.op == "const" and isinstance(node.attr, float) else None
