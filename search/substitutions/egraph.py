"""An e-graph of expressions with types, in which the two sides of rules become equal.

It is small and plain: it decides which rules others imply, and which rules of other systems follow
from ours. Whole networks are saturated elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mirage_py.axioms.substitutions.expression import (
    OPERATORS,
    Attr,
    Expr,
    Type,
    inputs,
    nodes,
    result_type,
)
from mirage_py.errors import InputError
from mirage_py.search.substitutions.matching import (
    Bound,
    axis_fits,
    axis_value,
    type_fits,
    window_fits,
)

MAX_NODES = 600
ROUNDS = 5
# Nodes that are added to two graphs until they are equal.
MORE_NODES = 1_000


class Rewrite(NamedTuple):
    """Outputs of a left side, and those that may stand in their place."""

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]


class Node(NamedTuple):
    """An operator over classes."""

    op: str
    attrs: tuple[Attr, ...]
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """What the inputs and sizes of a rule stand for; ``roots`` are the classes of its outputs."""

    values: Mapping[str, int]
    bound: Bound
    roots: tuple[int, ...]


class EGraph:
    """Classes of equal expressions."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self.types: list[Type] = []
        self._nodes: list[Node] = []
        self.table: dict[Node, int] = {}
        self._by_op: dict[str, list[tuple[Node, int]]] = {}
        self._of_class: dict[tuple[int, str], list[Node]] = {}

    def find(self, number: int) -> int:
        """The class that a number is in."""
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number

    def add(self, node: Node, of: Type | None = None) -> int:
        """The class of a node. Raises InputError where it has no shape."""
        node = self._canonical(node)
        known = self.table.get(node)
        if known is not None:
            return self.find(known)
        found = of or self.type_of(node)
        number = len(self._parent)
        self._parent.append(number)
        self.types.append(found)
        self.table[node] = number
        self._nodes.append(node)
        self._of_class.setdefault((number, node.op), []).append(node)
        return number

    def type_of(self, node: Node) -> Type:
        """The shape of a node over classes. Raises InputError where it has none."""
        return result_type(node.op, node.attrs, [self.types[a] for a in node.args])

    def node(self, number: int) -> Node:
        """What a class was made for."""
        return self._nodes[number]

    def nodes(self, number: int, op: str) -> Sequence[Node]:
        """The nodes of an operator in a class."""
        return tuple(self._of_class.get((self.find(number), op), ()))

    def note(self, node: Node, number: int) -> None:
        """Let a class be matched as a node, too."""
        some = self._of_class.setdefault((number, node.op), [])
        if node not in some:
            some.append(node)

    def add_expr(self, root: Expr) -> int:
        """The class of an expression."""
        done: dict[Expr, int] = {}
        for x in nodes(root):
            done[x] = self.add(Node(x.op, x.attrs, tuple(done[a] for a in x.args)))
        return done[root]

    def lookup(self, root: Expr) -> int | None:
        """The class of an expression that is there, or None."""
        done: dict[Expr, int] = {}
        for x in nodes(root):
            node = self._canonical(Node(x.op, x.attrs, tuple(done[a] for a in x.args)))
            if node not in self.table:
                return None
            done[x] = self.find(self.table[node])
        return done[root]

    def are_equal(self, one: Expr, other: Expr) -> bool:
        """Whether two expressions are there, in one class."""
        found = self.lookup(one)
        return found is not None and found == self.lookup(other)

    def merge(self, one: int, other: int) -> bool:
        """Make two classes one; False if they were. ``rebuild`` has to follow."""
        a, b = self.find(one), self.find(other)
        if a == b:
            return False
        self._parent[max(a, b)] = min(a, b)
        return True

    def rebuild(self) -> None:
        """Merge what has equal operands, until nothing has."""
        changed = True
        while changed:
            changed = False
            new: dict[Node, int] = {}
            for node, number in self.table.items():
                here = self._canonical(node)
                there = new.setdefault(here, self.find(number))
                changed |= self.merge(there, number)
            self.table = new
        self._by_op, self._of_class = {}, {}
        for node, number in self.table.items():
            root = self.find(number)
            self._by_op.setdefault(node.op, []).append((node, root))
            self._of_class.setdefault((root, node.op), []).append(node)

    def _canonical(self, node: Node) -> Node:
        return Node(node.op, node.attrs, tuple(map(self.find, node.args)))

    # -- rules ------------------------------------------------------------------------------------

    def matches(self, rule: Rewrite) -> Iterator[Match]:
        """Every place where a left side stands."""
        yield from self._all(rule.left, (), {}, {})

    def matches_of(self, rule: Rewrite, node: Node) -> Iterator[Match]:
        """Every way in which a node, which need not be there, is the root of a left side."""
        for values, bound in self._node(rule.left[0], node, {}, {}):
            yield Match(values, bound, ())

    def _all(
        self,
        patterns: tuple[Expr, ...],
        roots: tuple[int, ...],
        values: Mapping[str, int],
        bound: Bound,
    ) -> Iterator[Match]:
        if not patterns:
            if len({*roots}) == len(roots):
                yield Match(values, bound, roots)
            return
        first = patterns[0]
        for node, root in self._by_op.get(first.op, ()):
            for found, sizes in self._node(first, node, values, bound):
                yield from self._all(patterns[1:], (*roots, root), found, sizes)

    def _class(
        self, pattern: Expr, number: int, values: Mapping[str, int], bound: Bound
    ) -> Iterator[tuple[Mapping[str, int], Bound]]:
        root = self.find(number)
        if pattern.op == "input":
            known = values.get(pattern.name)
            if known is not None:
                if known == root:
                    yield values, bound
                return
            for sizes in type_fits(pattern.type, self.types[root], bound):
                yield {**values, pattern.name: root}, sizes
            return
        for node in self._of_class.get((root, pattern.op), ()):
            yield from self._node(pattern, node, values, bound)

    def _node(
        self, pattern: Expr, node: Node, values: Mapping[str, int], bound: Bound
    ) -> Iterator[tuple[Mapping[str, int], Bound]]:
        found = self._attributes(pattern, node, bound)
        if found is None:
            return
        ways: list[tuple[Mapping[str, int], Bound]] = [(values, found)]
        for argument, child in zip(pattern.args, node.args, strict=True):
            ways = [w for v, b in ways for w in self._class(argument, child, v, b)]
        for v, b in ways:
            yield from ((v, c) for c in self._sizes(pattern, node, b))

    def _attributes(self, pattern: Expr, node: Node, bound: Bound) -> Bound | None:
        for name, own, actual in zip(OPERATORS[node.op][1], pattern.attrs, node.attrs, strict=True):
            if name == "window":
                fits = window_fits(str(own), str(actual), bound)
                if fits is None:
                    return None
                bound = fits
            elif name in ("axis", "index", "groups") and own != actual:
                return None
        return bound

    def _sizes(self, pattern: Expr, node: Node, bound: Bound) -> Iterator[Bound]:
        """The sizes that are attributes."""
        if node.op == "split":
            ways = [bound]
            for own, actual in zip(pattern.attrs[2], node.attrs[2], strict=True):  # type: ignore[arg-type]
                ways = [b for w in ways for b in axis_fits(own, actual, w)]  # type: ignore[arg-type]
            yield from ways
        elif node.op in ("enlarge", "max_pool", "avg_pool"):
            yield from axis_fits((str(pattern.attrs[-1]),), (str(node.attrs[-1]),), bound)
        else:
            yield bound

    def apply(self, rule: Rewrite, match: Match) -> bool:
        """Add a right side and merge; False where nothing is new or no shape fits."""
        if any(x.name not in match.values for x in inputs(*rule.right)):
            return False
        try:
            found = [self._added(x, match) for x in rule.right]
        except InputError:
            return False
        if any(
            self.types[self.find(r)] != self.types[n]
            for r, n in zip(match.roots, found, strict=True)
        ):
            return False
        merged = [self.merge(root, n) for root, n in zip(match.roots, found, strict=True)]
        return any(merged)

    def _added(self, root: Expr, match: Match) -> int:
        done: dict[Expr, int] = {}
        for x in nodes(root):
            if x.op == "input":
                done[x] = match.values[x.name]
                continue
            attrs = instance(x, match.bound)
            done[x] = self.add(Node(x.op, attrs, tuple(done[a] for a in x.args)))
        return done[root]

    def step(self, rules: Sequence[Rewrite], max_nodes: int = MAX_NODES) -> bool:
        """Every rule everywhere once; False if nothing new came out."""
        found = [(rule, m) for rule in rules for m in self.matches(rule)]
        changed = False
        for rule, match in found:
            if len(self.table) > max_nodes:
                break
            changed |= self.apply(rule, match)
        self.rebuild()
        return changed


def instance(x: Expr, bound: Bound) -> tuple[Attr, ...]:
    """The attributes of an expression of a rule where it is applied."""
    found: list[Attr] = []
    for name, own in zip(OPERATORS[x.op][1], x.attrs, strict=True):
        if name == "window":
            (value,) = bound.get(f"window {own}", (str(own),))
            found.append(value)
        elif name == "sizes":
            found.append(tuple(_axis(part, bound) for part in own))  # type: ignore[union-attr]
        elif name in ("margin", "kernel"):
            axis = _axis((str(own),), bound)
            if len(axis) != 1:
                raise InputError(f"{name} {own} of several parts")
            found.append(axis[0])
        else:
            found.append(own)
    return tuple(found)


def _axis(axis: object, bound: Bound) -> tuple[str, ...]:
    found = axis_value(axis, bound)  # type: ignore[arg-type]
    if found is None:
        raise InputError(f"nothing says how long {axis} is")
    return found


def are_equal(one: Expr, other: Expr, rewrites: Sequence[Rewrite]) -> bool:
    """Whether rules make two expressions equal, within bounds."""
    graph = EGraph()
    ends = graph.add_expr(one), graph.add_expr(other)
    graph.rebuild()
    most = len(graph.table) + MORE_NODES
    for _ in range(ROUNDS):
        if graph.find(ends[0]) == graph.find(ends[1]):
            return True
        if len(graph.table) > most or not graph.step(rewrites, most):
            break
    return graph.find(ends[0]) == graph.find(ends[1])


def reaches(left: Sequence[Expr], right: Sequence[Expr], rules: Sequence[Rewrite]) -> bool:
    """Whether the rules, applied to the left side alone, make the right side."""
    graph = EGraph()
    ends = [graph.add_expr(x) for x in left]
    for x in inputs(*right):
        graph.add_expr(x)
    graph.rebuild()
    for _ in range(ROUNDS):
        if _is_there(graph, ends, right):
            return True
        if not graph.step(rules, MAX_NODES) or len(graph.table) > MAX_NODES:
            break
    return _is_there(graph, ends, right)


def _is_there(graph: EGraph, ends: Sequence[int], right: Sequence[Expr]) -> bool:
    found = [graph.lookup(x) for x in right]
    return all(f is not None and f == graph.find(e) for f, e in zip(found, ends, strict=True))
