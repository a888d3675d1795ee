"""Late scales: constant factors of operands, moved after the matmul, and of logits into the
exponential.

Attention divides queries or scores by sqrt(d). A query that is divided before the matmul is rounded
to half precision once more; where logits are in the thousands that moves the softmax to another
key. After the matmul the factor costs a multiplication an element, unless it goes all the way into
the exponential, which multiplies by log2(e) anyway:

    exp(where(m, (c q) . k, -inf) - s)  ->  exp(c where(m, q . k, -inf) - s)
    max(c x)                            ->  c max(x)                            for c > 0

There all factors move whose result nothing but a softmax reads. Others, as those of logits with a
bias, move only where the scaled operand would be rounded: behind the product, or behind its sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp, inf, prod

from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block

# Factors beyond these could take logits out of the range of float32.
_SMALLEST, _LARGEST = 1e-6, 1e6
_ACCUMULATORS = ("accum_sum", "accum_rescaled")


def with_late_scales(block: BlockGraph, tensors: Mapping[str, Tensor]) -> BlockGraph:
    """The block graph with factors of operands where they round nothing, and of logits where they
    cost nothing; positions of nodes change.
    """
    scaled = _Scales(block, tensors)
    moves = scaled.roots or scaled.late
    return rebuild_block(block, _Rule(block, scaled)) if moves else block


class _Scales:
    """Which nodes are a constant factor times something that a softmax alone reads.

    ``roots`` are products with a scaled operand, or scaled products: {node: factor}. ``late`` are
    other products, with an operand that scaling would round.
    """

    def __init__(self, block: BlockGraph, tensors: Mapping[str, Tensor]) -> None:
        self.nodes = block.nodes
        self.tensors = tensors
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for argument in node.args:
                self.users[argument].append(number)
        self.roots: dict[int, float] = {}
        stay: dict[int, None] = {}
        for number in range(len(self.nodes)):
            factor = self._factor(number)
            if factor is not None and self._is_absorbed(number):
                self.roots[number] = factor
            elif factor is not None:
                stay[number] = None
        self._keep_together(stay)
        self.late = {
            n: self._factor_of_operands(n)
            for n in range(len(self.nodes))
            if n not in self.roots and any(map(self._is_rounded, self.operands(n)))
        }

    def is_summed(self, product: int) -> bool:
        """Whether nothing but accumulators reads a product."""
        return all(self.nodes[u].op in _ACCUMULATORS for u in self.users[product])

    def scaled(self, number: int) -> tuple[int, float] | None:
        """What a node multiplies by a constant, and the constant."""
        node = self.nodes[number]
        if node.op not in ("mul", "div"):
            return None
        x, y = node.args
        if node.op == "mul" and self._number(x) is not None:
            x, y = y, x
        value = self._number(y)
        if value is None or value <= 0.0:
            return None
        factor = value if node.op == "mul" else 1.0 / value
        return (x, factor) if _SMALLEST < factor < _LARGEST else None

    def _number(self, number: int) -> float | None:
        """A constant, or a product or quotient of constants."""
        node = self.nodes[number]
        if node.op == "const" and isinstance(node.attr, float):
            return node.attr
        if node.op not in ("mul", "div"):
            return None
        x, y = map(self._number, node.args)
        if x is None or y is None or (node.op == "div" and y == 0.0):
            return None
        return x * y if node.op == "mul" else x / y

    def operands(self, number: int) -> list[tuple[int, int, float]]:
        """The operands of a product that are scaled loads: place, load and factor of each."""
        found = []
        for place, argument in enumerate(self.nodes[number].args):
            load, factor = self._scaled_load(argument)
            if self.nodes[number].op == "matmul" and factor is not None:
                found.append((place, load, factor))
        return found

    def _scaled_load(self, number: int) -> tuple[int, float | None]:
        """The load that a node multiplies by constants, and their product; None of other nodes."""
        found, factor = self.scaled(number), None
        while found is not None:
            number, factor = found[0], found[1] * (1.0 if factor is None else factor)
            found = self.scaled(number)
        return number, factor if self.nodes[number].op == "load" else None

    def _is_rounded(self, operand: tuple[int, int, float]) -> bool:
        """Whether a scaled load is a half number no more."""
        _, load, factor = operand
        is_half = self.tensors[self.nodes[load].access.tensor].dtype.is_half
        return is_half and frexp(factor)[0] != 0.5

    def _factor_of_operands(self, number: int) -> float:
        return prod(factor for _, _, factor in self.operands(number))

    def _factor(self, number: int) -> float | None:
        if self.nodes[number].op == "matmul":
            return self._factor_of_operands(number) if self.operands(number) else None
        found = self.scaled(number)
        if found is None or self.nodes[found[0]].op != "matmul" or found[0] in self.roots:
            return None
        return found[1]

    def _is_absorbed(self, number: int) -> bool:
        """Whether all that reads a node is a softmax, through masks."""
        users = self.users[number]
        return bool(users) and all(self._absorbs(u, number) for u in users)

    def _absorbs(self, user: int, number: int) -> bool:
        node = self.nodes[user]
        if node.op == "where":
            # A constant that is seen would have to be divided by the factor.
            is_masked = self.nodes[node.args[2]].attr == -inf
            return node.args[1] == number and is_masked and self._is_absorbed(user)
        if node.op == "sub":
            exps = [self.nodes[u].op for u in self.users[user]]
            return node.args[0] == number and bool(exps) and set(exps) == {"exp"}
        return node.op == "max"

    def _keep_together(self, stay: dict[int, None]) -> None:
        """Logits that share a shift with some that ``stay`` as they are stay too: otherwise the
        shift would be the maximum of logits that are rounded otherwise, and exponentials of large
        ones could be infinite.
        """
        while stay:
            shifts = {s for number in stay for s in self._shifts(number)}
            stay = {n: None for n in self.roots if not shifts.isdisjoint(self._shifts(n))}
            for number in stay:
                del self.roots[number]

    def _shifts(self, number: int) -> set[int]:
        """The shifts of logits: maxima of them, and what is subtracted from them."""
        found: set[int] = set()
        todo = [number]
        while todo:
            at = todo.pop()
            for user in self.users[at]:
                node = self.nodes[user]
                if node.op == "sub" and node.args[0] == at:
                    found.add(node.args[1])
                elif node.op in ("max", "accum_max"):
                    found.add(user)
                    todo.append(user)
                elif node.op == "where":
                    todo.append(user)
        return found


class _Rule:
    def __init__(self, block: BlockGraph, scales: _Scales) -> None:
        self.block = block
        self.scales = scales
        # Nodes without their factor, and the factor.
        self.bare: dict[int, tuple[int, float]] = {}

    def __call__(self, new: NewNodes, number: int) -> int | None:
        node = self.block.nodes[number]
        if number in self.scales.roots:
            self.bare[number] = self._root(new, number), self.scales.roots[number]
            return None
        if number in self.scales.late:
            product, factor = self._root(new, number), self.scales.late[number]
            if not self.scales.is_summed(number):
                return _times(new, product, factor)
            self.bare[number] = product, factor
            return None
        if node.op in _ACCUMULATORS and node.args[0] in self.bare:
            # Its factor goes where the sum is read, behind the loop.
            bare, factor = self.bare[node.args[0]]
            self.bare[number] = new.copy(number, {node.args[0]: bare}), factor
            return None
        if node.op == "where" and node.args[1] in self.bare and self._is_masked(node):
            bare, factor = self.bare[node.args[1]]
            args = (new.place[node.args[0]], bare, new.place[node.args[2]])
            self.bare[number] = new.add("where", args, None, node.dims), factor
            return None
        if node.op == "max" and node.args[0] in self.bare:
            bare, factor = self.bare[node.args[0]]
            return _times(new, new.add("max", (bare,), node.attr, node.dims), factor)
        return new.copy(number, self._scaled_again(new, node))

    def _scaled_again(self, new: NewNodes, node: Node) -> dict[int, int]:
        """The operands of a node that lack their factor, with it."""
        scaled = dict.fromkeys(a for a in node.args if a in self.bare)
        return {a: _times(new, *self.bare[a]) for a in scaled}

    def _is_masked(self, node: Node) -> bool:
        return self.block.nodes[node.args[2]].attr == -inf

    def _root(self, new: NewNodes, number: int) -> int:
        """The node without its factor."""
        node = self.block.nodes[number]
        if node.op != "matmul":
            found = self.scales.scaled(number)
            assert found is not None
            return new.place[found[0]]
        loads = {node.args[p]: new.place[load] for p, load, _ in self.scales.operands(number)}
        return new.copy(number, {**self._scaled_again(new, node), **loads})


def _times(new: NewNodes, number: int, factor: float) -> int:
    constant = new.add("const", (), factor)
    return new.add("mul", (number, constant), None, new.nodes[number].dims)
