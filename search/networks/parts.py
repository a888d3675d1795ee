"""The parts of a graph that substitutions changed, each as a pair of graphs over shared values.

A value that both graphs have is computed of the nearest values that both have. Where the two do so
by other operators, that is a part: two graphs of the same inputs, to be compared by anyone who does
not want to believe the substitutions. If all parts are equal, so are the outputs, by induction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.networks.operators.opaque import OPAQUE
from mirage_py.search.networks.egraph import EGraph
from mirage_py.search.networks.program_egraph import classes_of


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """Two graphs of the same inputs, in the same order, with the same outputs."""

    before: Graph
    after: Graph


def changed_parts(
    program: Graph, graph: Graph, egraph: EGraph, constant: Mapping[int, None]
) -> tuple[ChangedPart, ...]:
    """Every part once, with the classes in ``constant`` as its weights; parts over the same values
    are one with several outputs.
    """
    after, before = _Side(graph, egraph), _Side(program, egraph)
    shared = {c: None for c in after.values if c in before.values}
    groups: dict[tuple[int, ...], list[int]] = {}
    for class_ in shared:
        if not after.is_leaf(class_) and before.form(class_) != after.form(class_):
            leaves = _leaves(class_, shared, before, after)
            groups.setdefault(tuple(sorted(leaves)), []).append(class_)
    found: dict[tuple[str, str], ChangedPart] = {}
    for border, outputs in groups.items():
        part = ChangedPart(
            before.cut(border, outputs, constant), after.cut(border, outputs, constant)
        )
        found.setdefault((part.before.digest, part.after.digest), part)
    return tuple(found.values())


def _leaves(
    class_: int, shared: Mapping[int, None], before: _Side, after: _Side
) -> dict[int, None]:
    """Values that both sides compute it of. What one side alone passes through is no leaf: it would
    be taken for independent of the others.
    """
    border = {c: None for c in shared if c != class_}
    while True:
        one, other = before.leaves(class_, border), after.leaves(class_, border)
        passed = [c for c in border if (c in one) != (c in other) and not after.is_leaf(c)]
        if not passed:
            return {**one, **other}
        for c in passed:
            del border[c]


class _Side:
    """A graph by the classes of its values."""

    def __init__(self, graph: Graph, egraph: EGraph) -> None:
        self.graph, self._egraph = graph, egraph
        self.classes = classes_of(graph, egraph)
        self.values: dict[int, Value] = {}
        for value, class_ in self.classes.items():
            self.values.setdefault(class_, value)

    def is_leaf(self, class_: int) -> bool:
        """Whether nothing is known of how it is computed."""
        value = self.values[class_]
        return value.is_input or self.graph.nodes[value.node].operator == OPAQUE.name

    def form(self, class_: int) -> object:
        """An operator with the classes of its operands."""
        value = self.values[class_]
        node = self.graph.nodes[value.node]
        return node.operator, node.attributes, self.operands(class_), value.index

    def operands(self, class_: int) -> tuple[int, ...]:
        """The classes of the operands of the operator that computes it."""
        return tuple(self.classes[v] for v in self.graph.nodes[self.values[class_].node].inputs)

    def leaves(self, class_: int, border: Mapping[int, None]) -> dict[int, None]:
        """The nearest values of a border, or inputs, that a value is computed of."""
        found: dict[int, None] = {}
        seen: dict[int, None] = {class_: None}
        todo = [class_]
        while todo:
            for operand in self.operands(todo.pop()):
                if operand in border or self.is_leaf(operand):
                    found[operand] = None
                elif operand not in seen:
                    seen[operand] = None
                    todo.append(operand)
        return found

    def cut(
        self, leaves: Iterable[int], outputs: Iterable[int], constant: Mapping[int, None]
    ) -> Graph:
        """The outputs as a graph of the leaves."""
        builder = GraphBuilder()
        made: dict[Value, Value] = {}
        entries = {}
        for n, class_ in enumerate(leaves):
            kind, known = self._egraph.type(class_), class_ in constant
            entries[class_] = builder.input(f"v{n}", kind.shape, kind.dtype, constant=known)
        todo = [self.values[c] for c in outputs]
        wanted = list(todo)
        while todo:
            value = todo[-1]
            class_ = self.classes[value]
            if value in made or class_ in entries:
                made.setdefault(value, entries.get(class_, value))
                todo.pop()
                continue
            node = self.graph.nodes[value.node]
            missing = [v for v in node.inputs if v not in made]
            if missing:
                todo += missing
                continue
            operands = [made[v] for v in node.inputs]
            results = builder.apply_all(node.operator, *operands, **node.values)
            made |= {Value(value.node, n): x for n, x in enumerate(results)}
        return builder.build(*(made[v] for v in wanted))
