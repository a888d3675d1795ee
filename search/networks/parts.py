"""The parts of a graph that substitutions changed, each as a pair of graphs over shared values.

A value that both graphs have is computed of the nearest values that both have. Where the two do so
by other operators, that is a part: two graphs of the same inputs, to be compared by anyone who does
not want to believe the substitutions. Where saturation made one class of several values of a graph,
each is compared with the first, as any may be taken for it. If all parts are equal,
so are the outputs, by induction over the values in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.networks.operators.opaque import OPAQUE
from mirage_py.search.networks.egraph import EGraph
from mirage_py.search.networks.program_egraph import classes_of

# Values that are compared together: programs have no more than so many dimensions.
_MOST_OUTPUTS = 24


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """Two graphs of the same inputs, in the same order, with the same outputs."""

    before: Graph
    after: Graph


def changed_parts(
    program: Graph, graph: Graph, egraph: EGraph, constant: Mapping[int, None]
) -> tuple[ChangedPart, ...]:
    """Every part once, with the classes in ``constant`` as its weights; parts over the same values,
    and parts that have a new value in common, are one with several outputs.
    """
    after, before = _Side(graph, egraph), _Side(program, egraph)
    shared = {c: None for c in after.values if c in before.values}
    changed = [c for c in shared if not after.is_leaf(c) and before.form(c) != after.form(c)]
    groups: dict[tuple[int, ...], list[int]] = {}
    for together in _together(changed, shared, before, after, constant):
        leaves = _leaves(together, shared, before, after)
        groups.setdefault(tuple(sorted(leaves)), []).extend(together)
    parts = [
        ChangedPart(
            before.cut(border, [before.values[c] for c in outputs], constant),
            after.cut(border, [after.values[c] for c in outputs], constant),
        )
        for border, together in groups.items()
        for first in range(0, len(together), _MOST_OUTPUTS)
        for outputs in [together[first : first + _MOST_OUTPUTS]]
    ]
    parts += [*before.merged(constant), *after.merged(constant)]
    return tuple({(p.before.digest, p.after.digest): p for p in parts}.values())


def _together(
    changed: Sequence[int],
    shared: Mapping[int, None],
    before: _Side,
    after: _Side,
    constant: Mapping[int, None],
) -> list[list[int]]:
    """The changed values, those in one list that are computed of one new value, as products are
    that were merged: a comparison then evaluates it once for all of them.
    """
    groups: dict[int, list[int]] = {}
    group_of: dict[int, int] = {}
    for class_ in changed:
        leaves = _leaves([class_], shared, before, after)
        new = [c for c in after.between(class_, leaves) if c not in constant]
        met = sorted({group_of[c] for c in new if c in group_of})
        groups[class_] = [*(c for number in met for c in groups.pop(number)), class_]
        group_of = {c: class_ if n in met else n for c, n in group_of.items()}
        group_of |= dict.fromkeys(new, class_)
    return list(groups.values())


def _leaves(
    classes: Sequence[int], shared: Mapping[int, None], before: _Side, after: _Side
) -> dict[int, None]:
    """Values that both sides compute them of. What one side alone passes through is no leaf: it
    would be taken for independent of the others.
    """
    border = {c: None for c in shared if c not in classes}
    while True:
        one, other = (side.leaves(classes, border) for side in (before, after))
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
        return self._is_given(self.values[class_])

    def form(self, class_: int) -> object:
        """An operator with the classes of its operands."""
        return self._form(self.values[class_])

    def merged(self, constant: Mapping[int, None]) -> Iterator[ChangedPart]:
        """Each value that is in the class of an earlier one and computed otherwise, beside it."""
        for value, class_ in self.classes.items():
            first = self.values[class_]
            if self._form(value) != self._form(first):
                leaves = self._common(first, value)
                yield ChangedPart(
                    self._cut(leaves, [first], constant), self._cut(leaves, [value], constant)
                )

    def _common(self, first: Value, value: Value) -> dict[Value, None]:
        """The nearest values that both are computed of, or inputs."""
        reached = self._nearest(value, {})
        border = {v: None for v in self._nearest(first, {}) if v in reached}
        while True:
            one, other = self._ends(first, border), self._ends(value, border)
            passed = [v for v in border if (v in one) != (v in other) and not self._is_given(v)]
            if not passed:
                return one | other
            for v in passed:
                del border[v]

    def _nearest(self, value: Value, border: Mapping[Value, None]) -> dict[Value, None]:
        """A value and all that it is computed of, down to a border and to inputs."""
        found: dict[Value, None] = {value: None}
        todo = [value]
        while todo:
            last = todo.pop()
            if last in border or self._is_given(last):
                continue
            fresh = [v for v in self.graph.nodes[last.node].inputs if v not in found]
            found |= dict.fromkeys(fresh)
            todo += fresh
        return found

    def _ends(self, value: Value, border: Mapping[Value, None]) -> dict[Value, None]:
        """The values of a border, and inputs, where a walk from a value ends."""
        walked = self._nearest(value, border)
        return {v: None for v in walked if v in border or self._is_given(v)}

    def _is_given(self, value: Value) -> bool:
        return value.is_input or self.graph.nodes[value.node].operator == OPAQUE.name

    def _form(self, value: Value) -> object:
        if value.is_input:
            return value
        node = self.graph.nodes[value.node]
        operands = tuple(self.classes[v] for v in node.inputs)
        return node.operator, node.attributes, operands, value.index

    def operands(self, class_: int) -> tuple[int, ...]:
        """The classes of the operands of the operator that computes it."""
        return tuple(self.classes[v] for v in self.graph.nodes[self.values[class_].node].inputs)

    def leaves(self, classes: Sequence[int], border: Mapping[int, None]) -> dict[int, None]:
        """The nearest values of a border, or inputs, that values are computed of."""
        found: dict[int, None] = {}
        seen: dict[int, None] = dict.fromkeys(classes)
        todo = [*classes]
        while todo:
            for operand in self.operands(todo.pop()):
                if operand in border or self.is_leaf(operand):
                    found[operand] = None
                elif operand not in seen:
                    seen[operand] = None
                    todo.append(operand)
        return found

    def between(self, class_: int, leaves: Mapping[int, None]) -> dict[int, None]:
        """What a value is computed of, down to leaves, these and itself left out."""
        found: dict[int, None] = {}
        todo = [class_]
        while todo:
            fresh = [c for c in self.operands(todo.pop()) if c not in leaves and c not in found]
            found |= dict.fromkeys(fresh)
            todo += fresh
        return found

    def cut(
        self, leaves: Iterable[int], outputs: Iterable[Value], constant: Mapping[int, None]
    ) -> Graph:
        """The outputs as a graph of the leaves, which are classes."""
        builder = GraphBuilder()
        entries = {c: self._entry(builder, n, c, constant) for n, c in enumerate(leaves)}
        made = {v: entries[c] for v, c in self.classes.items() if c in entries}
        return self._built(builder, made, outputs)

    def _cut(
        self, leaves: Iterable[Value], outputs: Iterable[Value], constant: Mapping[int, None]
    ) -> Graph:
        """The same of leaves that are values."""
        builder = GraphBuilder()
        made = {v: self._entry(builder, n, self.classes[v], constant) for n, v in enumerate(leaves)}
        return self._built(builder, made, outputs)

    def _entry(
        self, builder: GraphBuilder, number: int, class_: int, constant: Mapping[int, None]
    ) -> Value:
        kind = self._egraph.type(class_)
        return builder.input(f"v{number}", kind.shape, kind.dtype, constant=class_ in constant)

    def _built(
        self, builder: GraphBuilder, made: dict[Value, Value], outputs: Iterable[Value]
    ) -> Graph:
        wanted = list(outputs)
        todo = list(wanted)
        while todo:
            value = todo[-1]
            if value in made:
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
