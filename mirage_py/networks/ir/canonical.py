"""Graphs of the same inputs with these named and numbered by where they are read, so that what
differs in names and in the order of nodes alone is equal, and has one digest.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import INPUTS, Graph, Value


def canonical(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """The graphs, of the same inputs in the same order, with the inputs in the order in which walks
    from the outputs of each graph meet them, and nodes in the order of these walks.
    """
    order: dict[int, None] = {}
    walks = [_walk(graph, order) for graph in graphs]
    order |= dict.fromkeys(range(len(graphs[0].inputs)))
    return tuple(_built(g, walk, list(order)) for g, walk in zip(graphs, walks, strict=True))


def _walk(graph: Graph, order: dict[int, None]) -> list[int]:
    """The nodes that the outputs need, operands first; ``order`` gets the inputs that are met."""
    done: dict[int, None] = {}
    todo = [*reversed(graph.outputs)]
    while todo:
        value = todo[-1]
        if value.is_input or value.node in done:
            if value.is_input:
                order.setdefault(value.index)
            todo.pop()
            continue
        waiting = [
            v
            for v in graph.nodes[value.node].inputs
            if (v.index not in order if v.is_input else v.node not in done)
        ]
        if not waiting:
            done[todo.pop().node] = None
        todo += reversed(waiting)
    return list(done)


def _built(graph: Graph, walk: Sequence[int], order: Sequence[int]) -> Graph:
    builder = GraphBuilder()
    place: dict[Value, Value] = {}
    for number, old in enumerate(order):
        entry = graph.inputs[old]
        place[Value(INPUTS, old)] = builder.input(
            f"v{number}",
            entry.type.shape,
            entry.type.dtype,
            constant=entry.name in graph.constants,
        )
    for number in walk:
        node = graph.nodes[number]
        operands = [place[v] for v in node.inputs]
        results = builder.apply_all(node.operator, *operands, **node.values)
        place |= {Value(number, n): x for n, x in enumerate(results)}
    return builder.build(*(place[v] for v in graph.outputs))
