"""Regions of a graph: some of its nodes as a graph of their own, and in their place another one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
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


def with_replacement(graph: Graph, region: Region, replacement: Graph) -> Graph:
    """The graph with another one in the place of a region; inputs and outputs go by position.

    InputError where types differ, or where the region reads what is computed from its results.
    """
    if replacement.output_types != tuple(graph.type_of(v) for v in region.outputs):
        raise InputError("the replacement of a region has results of other types")
    wanted = tuple(graph.type_of(v) for v in region.inputs)
    if tuple(entry.type for entry in replacement.inputs) != wanted:
        raise InputError("the replacement of a region has inputs of other types")
    builder = GraphBuilder()
    place: dict[Value, Value] = {}
    for position, entry in enumerate(graph.inputs):
        constant = entry.name in graph.constants
        place[Value(INPUTS, position)] = builder.input(
            entry.name, entry.type.shape, entry.type.dtype, constant=constant
        )
    waiting = [n for n in range(len(graph.nodes)) if n not in region.nodes]
    inserted = False
    while waiting or not inserted:
        before = len(waiting), inserted
        if not inserted and all(v in place for v in region.inputs):
            known = {Value(INPUTS, n): place[v] for n, v in enumerate(region.inputs)}
            new = builder.copied(replacement, known)
            outputs = zip(region.outputs, replacement.outputs, strict=True)
            place |= {old: new[value] for old, value in outputs}
            inserted = True
        later: list[int] = []
        for number in waiting:
            node = graph.nodes[number]
            if any(v not in place for v in node.inputs):
                later.append(number)
                continue
            operands = [place[v] for v in node.inputs]
            results = builder.apply_all(node.operator, *operands, **node.values)
            place |= {Value(number, n): value for n, value in enumerate(results)}
        waiting = later
        if (len(waiting), inserted) == before:
            raise InputError("a region reads what is computed from its results")
    return builder.build(*(place[v] for v in graph.outputs))
