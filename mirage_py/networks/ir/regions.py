"""Regions of a graph: some of its nodes as a graph of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mirage_py.networks.ir.graph import INPUTS, Graph, Input, Node, Value


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes of a graph in order, the values that they read from outside, each once, and those of
    their results that are read outside.
    """

    nodes: tuple[int, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @classmethod
    def of(cls, graph: Graph, nodes: Collection[int]) -> Region:
        """The region of some nodes."""
        inside = tuple(sorted(dict.fromkeys(nodes)))
        read = [v for n in inside for v in graph.nodes[n].inputs if v.node not in inside]
        outside = [n for n in range(len(graph.nodes)) if n not in inside]
        wanted = [v for n in outside for v in graph.nodes[n].inputs] + list(graph.outputs)
        results = sorted(v for v in dict.fromkeys(wanted) if v.node in inside)
        return cls(inside, tuple(dict.fromkeys(read)), tuple(results))

    def graph(self, whole: Graph) -> Graph:
        """Its nodes as a graph: inputs keep their names, other values are v0, v1, ..."""
        place: dict[Value, Value] = {}
        inputs: list[Input] = []
        taken = [entry.name for entry in whole.inputs]
        constants: list[str] = []
        for position, value in enumerate(self.inputs):
            name = taken[value.index] if value.is_input else _free(f"v{position}", taken)
            inputs.append(Input(name, whole.type_of(value)))
            place[value] = Value(INPUTS, position)
            known = name in whole.constants if value.is_input else whole.is_constant[value.node]
            constants += [name] * known
        nodes: list[Node] = []
        for new, old in enumerate(self.nodes):
            node = whole.nodes[old]
            operands = tuple(place[v] for v in node.inputs)
            nodes.append(Node(node.operator, node.attributes, operands))
            for n in range(len(whole.types[old])):
                place[Value(old, n)] = Value(new, n)
        outputs = tuple(place[v] for v in self.outputs)
        return Graph(tuple(inputs), tuple(constants), tuple(nodes), outputs)


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name
