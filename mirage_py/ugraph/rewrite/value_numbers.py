"""Numbers of values: equal numbers, equal formulas.

A value that several loops or kernels compute again has one number. What does not change a value is
not seen: casts, the order of commuting operands, sums of sums, products that are summed, and that a
sum was gathered over the iterations of a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.ugraph.node import Attr, Node
from mirage_py.ugraph.operators import STATE, operator

_Formula = tuple[str, Attr, tuple[int, ...]]


class ValueNumbers:
    """Gives each formula the next number."""

    def __init__(self) -> None:
        self._numbers: dict[_Formula, int] = {}
        # Number -> the dimensions and the operand of a sum.
        self._sums: dict[int, tuple[tuple[str, ...], int]] = {}
        # What one iteration sees of a reduction -> the whole of it.
        self._whole: dict[int, int] = {}

    def of(
        self,
        nodes: Sequence[Node],
        *,
        loops: Mapping[int, str] | None = None,
        known: Mapping[int, int] | None = None,
    ) -> list[int]:
        """The number of each node.

        ``loops`` gives nodes in a loop its dimension; ``known`` gives loads of intermediates the
        number of what was stored.
        """
        numbers: list[int] = []
        for position, node in enumerate(nodes):
            if known and position in known:
                numbers.append(known[position])
                continue
            args = tuple(numbers[a] for a in node.args)
            numbers.append(self._number(node, args, (loops or {}).get(position)))
        return numbers

    def _number(self, node: Node, args: tuple[int, ...], loop: str | None) -> int:
        if node.op == "cast":
            return args[0]
        kind = operator(node.op).kind
        if kind == STATE and args[0] in self._whole:
            return self._whole[args[0]]
        if node.op in ("sum", "matmul", "max"):
            whole = self._reduction(node, args)
            if loop not in node.reduced:
                return whole
            part = self._named("part", None, (whole,))
            self._whole[part] = whole
            return part
        commutes = operator(node.op).commutative
        return self._named(node.op, node.attr, tuple(sorted(args)) if commutes else args)

    def _reduction(self, node: Node, args: tuple[int, ...]) -> int:
        dims = tuple(sorted(node.reduced))
        if node.op == "max":
            return self._named("max", dims, args)
        (value,) = args if node.op == "sum" else (self._named("mul", None, tuple(sorted(args))),)
        if value in self._sums:
            inner, value = self._sums[value]
            dims = tuple(sorted((*dims, *inner)))
        number = self._named("sum", dims, (value,))
        self._sums[number] = dims, value
        return number

    def _named(self, op: str, attr: Attr, args: tuple[int, ...]) -> int:
        return self._numbers.setdefault((op, attr, args), len(self._numbers))
