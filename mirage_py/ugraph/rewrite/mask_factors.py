"""Mask factors: masks that a value is always multiplied by; where they are 0 it may be anything
finite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Tensor

_TRUTH = ("mask", "lt", "le", "gt", "ge", "eq", "ne")
# Operators that keep a factor of their first operand. A load reads what a store has written.
_PASSED_ON = ("neg", "cast", "div", "mul", "store", "load")


class MaskFactors:
    """The factors 0 or 1 of a list of nodes; ``numbers`` says which nodes are one value.

    A load may have a store for its operand, whose value it reads. ``roots`` are the nodes that
    somebody else reads too.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        tensors: Mapping[str, Tensor],
        numbers: Sequence[int],
        roots: Collection[int] = (),
    ) -> None:
        self._nodes = nodes
        self._tensors = tensors
        self._numbers = numbers
        self._users = reads_of(nodes)
        self._roots = roots

    def around(self, position: int) -> dict[int, int]:
        """The masks that every use of a node is multiplied by: number to one node of it.

        A use is multiplied by what stands beside it in a product, in whatever order the product is
        formed, and by the condition of a ``where`` that is 0 otherwise.
        """
        uses: list[dict[int, int]] = []
        todo: list[tuple[int, dict[int, int]]] = [(position, {})]
        while todo:
            current, masks = todo.pop()
            users = self._users[current]
            if current in self._roots or not users:
                uses.append(masks)
            for user in users:
                beside = self._beside(user, current)
                if beside is None:
                    uses.append(masks)
                else:
                    todo.append((user, masks | beside))
        return {m: n for m, n in uses[0].items() if all(m in masks for masks in uses)}

    def _beside(self, user: int, operand: int) -> dict[int, int] | None:
        """The masks that ``user`` multiplies ``operand`` by; None if it is no product of it."""
        node = self._nodes[user]
        if node.args.count(operand) > 1:
            return None
        if node.op == "where" and node.args[1] == operand and self._is_zero(node.args[2]):
            return self._within(node.args[0])
        if node.op not in _PASSED_ON or (node.op == "div" and node.args[1] == operand):
            return None
        if node.op != "mul":
            return {}
        (other,) = (a for a in node.args if a != operand)
        return self._within(other)

    def _within(self, position: int) -> dict[int, int]:
        """The masks that are factors of a value."""
        return {self._numbers[n]: n for n in self._factors(position) if self._is_truth(n)}

    def _factors(self, position: int) -> Iterator[int]:
        node = self._nodes[position]
        if node.op in _PASSED_ON and node.args:
            yield from self._factors(node.args[0])
            if node.op == "mul":
                yield from self._factors(node.args[1])
        else:
            yield position

    def _is_truth(self, position: int) -> bool:
        node = self._nodes[position]
        if node.op == "load":
            return self._tensors[node.access.tensor].dtype == BOOL
        if node.op == "sub":  # what 1 leaves of a condition
            first, second = (self._nodes[a] for a in node.args)
            is_one = first.op == "const" and first.attr == 1.0
            return is_one and (second.op != "sub") and self._is_truth(node.args[1])
        return node.op in _TRUTH

    def _is_zero(self, position: int) -> bool:
        return self._nodes[position].op == "const" and self._nodes[position].attr == 0.0
