"""What known rules make of the graphs of an enumeration, by steps at the last operator.

Nothing is learned of two equal graphs where such steps lead from one to the other, or to a smaller
graph, which is paired with the other as well. Smaller is what has fewer operators, or as many of
which the last one with its operands comes first in the enumeration, under the best renaming of the
inputs: so it does not matter what inputs are called, and no chain of such steps comes back to where
it began. Nothing is built for this: a step counts where the enumeration has its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations, product

from mirage_py.axioms.substitutions.expression import Attr, Expr, nodes
from mirage_py.errors import InputError
from mirage_py.search.substitutions.egraph import EGraph, Match, Node, Rewrite, instance
from mirage_py.search.substitutions.enumeration import COMMUTE, Enumeration, flat, split_sizes

# A graph by its last operator, as a place in the universe, and its operands, as numbers.
Key = tuple[int, tuple[int, ...]]
# Graphs that are looked at on the way from one to another.
_MOST = 100


class Renamings:
    """What becomes of graphs when inputs of one shape change places."""

    def __init__(self, enumeration: Enumeration) -> None:
        self._of = enumeration
        self._order = {o: n for n, o in enumerate(enumeration.universe.operators)}
        self._numbers: dict[Key, int] = {}
        sorts: dict[object, list[int]] = {}
        for number in enumeration.at(0):
            sorts.setdefault(enumeration.values[number].shape, []).append(number)
        self._maps: list[dict[int, int]] = []
        for chosen in product(*map(permutations, sorts.values())):
            pairs = zip(sorts.values(), chosen, strict=True)
            self._maps.append({a: b for old, new in pairs for a, b in zip(old, new, strict=True)})

    def extend(self, level: int) -> None:
        """Learn the graphs of a level; those of the levels before are known."""
        numbers = self._of.at(level)
        self._numbers |= {self.key(n): n for n in numbers}
        for n in numbers if level else ():
            for map_, image in zip(self._maps, self.images(self.key(n)), strict=True):
                if image in self._numbers:
                    map_[n] = self._numbers[image]

    def key(self, number: int) -> Key:
        """A graph by what it is made of."""
        value = self._of.values[number]
        return (self._order.get((value.op, value.attrs), -1), value.args)

    def key_of(self, op: str, attrs: tuple[Attr, ...], args: tuple[int, ...]) -> Key:
        """The same of a graph that has no number."""
        return self._order[op, attrs], args

    def images(self, key: Key) -> list[Key | None]:
        """A graph under each renaming; None where it is none of those enumerated."""
        commutes = self._of.universe.operators[key[0]][0] in COMMUTE
        values, found = self._of.values, list[Key | None]()
        for map_ in self._maps:
            args = tuple([map_.get(a, -1) for a in key[1]])
            if commutes and args[0] > args[1] and values[args[1]].shape:
                args = args[::-1]
            found.append(None if -1 in args else (key[0], args))
        return found

    def smallest(self, key: Key) -> Key:
        """The first of all images."""
        return min(image for image in self.images(key) if image)

    def pair(self, first: int, other: int, level: int) -> tuple[Key, Key]:
        """A pair of graphs, of which the second is of this level, under the best renaming."""
        ends: Iterable[Key | None] = (
            self.images(self.key(first))
            if self._of.level(first) == level
            else [(-1, (map_[first],)) if first in map_ else None for map_ in self._maps]
        )
        others = self.images(self.key(other))
        return min((b, a) for a, b in zip(ends, others, strict=True) if a and b)

    def named_alike(self, number: int) -> list[int]:
        """The numbers of all images of a graph."""
        return [self._numbers[i] for i in self.images(self.key(number)) if i in self._numbers]


class Reductions:
    """The graphs below a level in an e-graph, and what rules make of those of the level."""

    def __init__(
        self,
        renamings: Renamings,
        enumeration: Enumeration,
        level: int,
        rules: Sequence[Rewrite],
        apart: Mapping[int, None],
    ) -> None:
        """``apart`` are graphs of which no rule says that they equal the first of their value."""
        self._renamings, self._of, self._level = renamings, enumeration, level
        self._rules: dict[str, list[Rewrite]] = {}
        for rule in rules:
            if len(rule.left) == 1 and rule.left[0].op != "input":
                self._rules.setdefault(rule.left[0].op, []).append(rule)
        self._graph = graph = EGraph()
        for below in range(level):
            # Numbers of classes are those of values.
            for n in enumeration.at(below):
                graph.add(self._node(n), tuple(map(flat, enumeration.values[n].shape)))
        for first, other in enumeration.equal:
            if enumeration.level(other) < level and not {first, other} & apart.keys():
                graph.merge(first, other)
        graph.rebuild()

    def _node(self, number: int) -> Node:
        value = self._of.values[number]
        attrs = value.attrs
        if value.op == "input":
            attrs = (*attrs, tuple(map(flat, value.shape)))
        elif value.op == "split":
            shape = self._of.values[value.args[0]].shape
            attrs = (*attrs, split_sizes(shape, int(str(attrs[0]))))
        return Node(value.op, attrs, value.args)

    def is_implied(self, first: int, other: int) -> bool:
        """Whether rules at the last operator lead from a graph of the level to one that it equals,
        or to a smaller one.
        """
        own = self._renamings.smallest(self._renamings.key(other))
        end = self._node(first)
        seen: dict[Node, None] = {self._node(other): None}
        todo = list(seen)
        while todo and len(seen) < _MOST:
            for node in self._made_of(todo.pop()):
                if node is None or node == end or self._smallest(node) < own:
                    return True
                if node not in seen:
                    seen[node] = None
                    todo.append(node)
        return False

    def _made_of(self, node: Node) -> Iterator[Node | None]:
        """What rules make of a graph: graphs of the level; None for one of a lower level."""
        for rule in self._rules.get(node.op, ()):
            for match in self._graph.matches_of(rule, node):
                try:
                    made = self._made(rule.right[0], match)
                except InputError:
                    continue
                if isinstance(made, int):
                    yield None
                elif made is not None and self._is_of_level(made):
                    yield made

    def _made(self, root: Expr, match: Match) -> Node | int | None:
        """A right side: its class, or its last operator where only that is not there."""
        graph, made = self._graph, dict[Expr, int]()
        for x in nodes(root):
            if x.op == "input":
                if x.name not in match.values:
                    return None
                made[x] = graph.find(match.values[x.name])
                continue
            node = Node(x.op, instance(x, match.bound), tuple(made[a] for a in x.args))
            known = graph.table.get(node)
            if known is None:
                return node if x is root else None
            made[x] = graph.find(known)
        return made[root]

    def _is_of_level(self, node: Node) -> bool:
        operands = [self._of.values[a] for a in node.args]
        shape = self._of.shape(node.op, self._attrs(node), [v.shape for v in operands])
        if shape is None or len(self._of.joint(node.args)) >= self._level:
            return False
        return node.op != "split" or node.attrs[2] == split_sizes(
            operands[0].shape, int(str(node.attrs[0]))
        )

    def _attrs(self, node: Node) -> tuple[Attr, ...]:
        """The attributes as a universe says them."""
        return node.attrs[:2] if node.op == "split" else node.attrs

    def _smallest(self, node: Node) -> Key:
        key = self._renamings.key_of(node.op, self._attrs(node), node.args)
        return self._renamings.smallest(key)
