"""Graphs of networks with another graph in the place of a region."""

from __future__ import annotations

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.networks.ir.regions import Region


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
