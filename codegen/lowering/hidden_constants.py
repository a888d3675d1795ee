"""Hidden mask constants: those that no result sees become minus infinity.

exp(where(m, x, low) - s) m is 0 where the mask m does not hold, whatever ``low`` is, and any shift
s is valid. ``low`` is hidden then. Minus infinity in its place is below every other value, so no
maximum is that of a masked element; it is the same in every base and under every factor, and its
exponential is 0 before it is masked.

All other constants are numbers of the program, however low. In a row of nothing else they are the
maximum, and softmax gives the mean. The size of a constant does not tell the two apart: users write
-1e30 and torch.finfo(dtype).min too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import ELEMENTWISE, LEAF, operator
from mirage_py.ugraph.rewrite.mask_factors import MaskFactors
from mirage_py.ugraph.rewrite.value_numbers import ValueNumbers

# What is still the masked value, or the largest of several.
_PASSING = ("where", "max", "cast", "mul", "div", "shift", "accum_max")


def with_hidden_constants(
    blocks: Sequence[BlockGraph], tensors: Mapping[str, Tensor], between: Collection[str]
) -> list[BlockGraph]:
    """The kernels of a µGraph with minus infinity for the constants that are hidden.

    ``between`` are the tensors that these kernels alone read and write.
    """
    if all(n.op != "where" for block in blocks for n in block.nodes):
        return list(blocks)
    flow = _Flow(blocks, tensors, between)
    made, first = [], 0
    for block in blocks:
        nodes = tuple(
            replace(node, attr=-inf) if flow.is_hidden_constant(first + number) else node
            for number, node in enumerate(block.nodes)
        )
        made.append(replace(block, nodes=nodes) if nodes != block.nodes else block)
        first += len(nodes)
    return made


class _Flow:
    """All nodes in one list, and what reads them, also in another kernel."""

    def __init__(
        self, blocks: Sequence[BlockGraph], tensors: Mapping[str, Tensor], between: Collection[str]
    ) -> None:
        self.nodes: list[Node] = []
        for block in blocks:
            first = len(self.nodes)
            self.nodes += (replace(n, args=tuple(first + a for a in n.args)) for n in block.nodes)
        self._between = between
        self._users = reads_of(self.nodes)
        self._numbers = ValueNumbers().of(self.nodes)
        self._factors = MaskFactors(self.nodes, tensors, self._numbers)

    def is_hidden_constant(self, number: int) -> bool:
        """Whether a node is a constant that is nothing but hidden."""
        users = self._users[number]
        return (
            self.nodes[number].op == "const"
            and bool(users)
            and all(self._is_low_end(u, number) and self._is_hidden(u) for u in users)
        )

    def _is_low_end(self, user: int, number: int) -> bool:
        node = self.nodes[user]
        return node.op == "where" and node.args.index(number) == 2

    def _is_hidden(self, where: int) -> bool:
        """Whether shifts and exponentials that are masked again are all that see what ``where``
        gives where its condition does not hold.
        """
        condition = self.nodes[where].args[0]
        if not self._is_pointwise(condition):
            return False
        # With whether it is a shift.
        todo = [(where, False)]
        seen = {*todo}
        while todo:
            current, is_shift = todo.pop()
            for user in self._users[current]:
                found = self._seen_by(user, current, condition, is_shift=is_shift)
                if found is None:
                    return False
                todo += (f for f in found if f not in seen)
                seen.update(found)
        return True

    def _seen_by(
        self, user: int, number: int, condition: int, *, is_shift: bool
    ) -> list[tuple[int, bool]] | None:
        """Where a value goes from its user; None if a result sees it."""
        node = self.nodes[user]
        if node.op == "store" and node.access.tensor in self._between:
            loads = (n for n, other in enumerate(self.nodes) if other.op == "load")
            name = node.access.tensor
            return [(n, is_shift) for n in loads if self.nodes[n].access.tensor == name]
        if node.op in ("accum_rescaled", "add") and is_shift and node.args[0] != number:
            return []  # sums are rescaled by differences of shifts; logarithms have them added
        if node.op == "sub":
            return [] if self._vanishes(user, number, condition, is_shift=is_shift) else None
        if node.op not in _PASSING or not self._keeps_order(node, number):
            return None
        if node.op == "accum_max" and node.attr != "shift":
            return None
        return [(user, is_shift or node.op in ("shift", "accum_max"))]

    def _vanishes(self, difference: int, number: int, condition: int, *, is_shift: bool) -> bool:
        """Whether a difference makes factors between shifts alone, or exponentials that are masked
        again.
        """
        left, right = self.nodes[difference].args
        if is_shift and self._is_shift(right if left == number else left):
            return True
        return (is_shift or left == number) and all(
            self.nodes[u].op == "exp" and self._is_masked(u, condition)
            for u in self._users[difference]
        )

    def _is_shift(self, number: int) -> bool:
        """Whether a value is a shift, or was stored as one."""
        node = self.nodes[number]
        if node.op == "load":
            name = node.access.tensor
            stores = [n for n in self.nodes if n.op == "store" and n.access.tensor == name]
            return bool(stores) and all(self._is_shift(n.args[0]) for n in stores)
        return node.op == "shift" or (node.op == "accum_max" and node.attr == "shift")

    def _is_masked(self, exponential: int, condition: int) -> bool:
        return self._numbers[condition] in self._factors.around(exponential)

    def _keeps_order(self, node: Node, number: int) -> bool:
        """Whether what is lower before is lower after it, and minus infinity stays."""
        if node.op == "where":
            return node.args[0] != number
        if node.op not in ("mul", "div"):
            return True
        factor = self.nodes[node.args[1]].attr
        return node.args[0] == number and isinstance(factor, float) and 0.0 < factor < inf

    def _is_pointwise(self, number: int) -> bool:
        """Whether a condition is the same number wherever the same formula stands."""
        todo = [number]
        while todo:
            node = self.nodes[todo.pop()]
            if operator(node.op).kind not in (LEAF, ELEMENTWISE):
                return False
            todo.extend(node.args)
        return True
