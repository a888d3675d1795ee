"""Constant factors of logits, moved behind the product and into the exponential.

Attention divides queries or scores by sqrt(d). A query that is divided before the product is
rounded to half precision once more; where logits are in the thousands that moves the softmax to
another key. Behind the product the factor costs a multiplication an element, unless it goes all the
way into the exponential, which multiplies by log2(e) anyway:

    exp(where(m, (c q) . k, low) - s)  ->  exp(c where(m, q . k, low / c) - s)
    max(c x)                           ->  c max(x)                                for c > 0

Only factors of which nothing but a softmax sees the result move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mirage_py.ugraph.node import Node
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT
from mirage_py.ugraph.ugraph import BlockGraph

# Factors beyond these would take a masked logit out of the range of float32.
_SMALLEST, _LARGEST = 1e-6, 1e6


def with_late_scales(block: BlockGraph) -> BlockGraph:
    """The block graph with factors of logits where they cost nothing; positions of nodes change."""
    scaled = _Scales(block)
    return _Rewriter(block, scaled).run() if scaled.roots else block


class _Scales:
    """Which nodes are a constant factor times something that a softmax alone reads.

    ``roots`` are products with a scaled operand, or scaled products: {node: factor}.
    """

    def __init__(self, block: BlockGraph) -> None:
        self.nodes = block.nodes
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for argument in node.args:
                self.users[argument].append(number)
        self.roots: dict[int, float] = {}
        for number in range(len(self.nodes)):
            factor = self._factor(number)
            if factor is not None and self._is_absorbed(number):
                self.roots[number] = factor

    def scaled(self, number: int) -> tuple[int, float] | None:
        """What a node multiplies by a constant, and the constant."""
        node = self.nodes[number]
        if node.op not in ("mul", "div"):
            return None
        x, y = node.args
        if node.op == "mul" and self.nodes[x].op == "const":
            x, y = y, x
        value = self.nodes[y].attr
        if self.nodes[y].op != "const" or not isinstance(value, float) or value <= 0.0:
            return None
        factor = value if node.op == "mul" else 1.0 / value
        return (x, factor) if _SMALLEST < factor < _LARGEST else None

    def operand(self, product: int) -> tuple[int, int, float] | None:
        """The operand of a product that is a scaled load: its place, the load and the factor."""
        for place, argument in enumerate(self.nodes[product].args):
            found = self.scaled(argument)
            if found is not None and self.nodes[found[0]].op == "load":
                return place, *found
        return None

    def _factor(self, number: int) -> float | None:
        if self.nodes[number].op == "matmul":
            operand = self.operand(number)
            return operand[2] if operand else None
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
            low = self.nodes[node.args[2]]
            is_low = low.op == "const" and isinstance(low.attr, float) and low.attr <= LOWEST_SHIFT
            is_masked = is_low and self._masks_again(user, node.args[0])
            return node.args[1] == number and is_masked and self._is_absorbed(user)
        if node.op == "sub":
            exps = [self.nodes[u].op for u in self.users[user]]
            return node.args[0] == number and bool(exps) and set(exps) == {"exp"}
        return node.op == "max"

    def _masks_again(self, where: int, condition: int) -> bool:
        """Whether every exponential of it is multiplied by the mask: how low it is where the mask
        does not hold makes no difference then.
        """
        differences = [u for u in self.users[where] if self.nodes[u].op == "sub"]
        return all(self._is_masked(x, condition) for d in differences for x in self.users[d])

    def _is_masked(self, number: int, condition: int) -> bool:
        """Whether all that reads a value multiplies it by the mask, or divides it before that."""
        for user in self.users[number]:
            node = self.nodes[user]
            is_divided = node.op == "div" and node.args[0] == number and number != node.args[1]
            if node.op == "mul" and condition in node.args:
                continue
            if not is_divided or not self._is_masked(user, condition):
                return False
        return True


class _Rewriter:
    def __init__(self, block: BlockGraph, scales: _Scales) -> None:
        self.block = block
        self.scales = scales
        self.nodes: list[Node] = []
        self.map: dict[int, int] = {}
        # Nodes without their factor, and the factor.
        self.bare: dict[int, tuple[int, float]] = {}

    def run(self) -> BlockGraph:
        sections = []
        for section in self.block.sections:
            first = len(self.nodes)
            for number in section.nodes:
                self._copy(number)
            sections.append(replace(section, nodes=tuple(range(first, len(self.nodes)))))
        return replace(self.block, nodes=tuple(self.nodes), sections=tuple(sections), threads=())

    def _add(self, op: str, args: Sequence[int], attr: object, dims: tuple[str, ...]) -> int:
        self.nodes.append(Node(op, tuple(args), attr, dims))  # type: ignore[arg-type]
        return len(self.nodes) - 1

    def _copy(self, number: int) -> None:
        node = self.block.nodes[number]
        if number in self.scales.roots:
            self._root(number, node)
        elif node.op == "where" and node.args[1] in self.bare:
            bare, factor = self.bare[node.args[1]]
            # Twice as low: rounded, the product with the factor is no higher than it was.
            low = self._add("const", (), 2.0 * self._constant(node.args[2]) / factor, ())
            condition = self.map[node.args[0]]
            self.bare[number] = self._add("where", (condition, bare, low), None, node.dims), factor
        elif node.op == "max" and node.args[0] in self.bare:
            bare, factor = self.bare[node.args[0]]
            self.map[number] = self._times(self._add("max", (bare,), node.attr, node.dims), factor)
        else:
            self.map[number] = self._add(
                node.op, tuple(self._whole(node.args)), node.attr, node.dims
            )

    def _root(self, number: int, node: Node) -> None:
        factor = self.scales.roots[number]
        if node.op != "matmul":
            found = self.scales.scaled(number)
            assert found is not None
            self.bare[number] = self.map[found[0]], factor
            return
        operand = self.scales.operand(number)
        assert operand is not None
        args = [self.map[a] for a in node.args]
        args[operand[0]] = self.map[operand[1]]
        self.bare[number] = self._add("matmul", args, node.attr, node.dims), factor

    def _whole(self, args: Sequence[int]) -> Iterator[int]:
        """Operands with their factors."""
        for argument in args:
            if argument in self.bare:
                bare, factor = self.bare[argument]
                yield self._times(bare, factor)
            else:
                yield self.map[argument]

    def _times(self, number: int, factor: float) -> int:
        constant = self._add("const", (), factor, ())
        return self._add("mul", (number, constant), None, self.nodes[number].dims)

    def _constant(self, number: int) -> float:
        value = self.block.nodes[number].attr
        assert isinstance(value, float)
        return value
