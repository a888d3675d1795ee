"""Lowering: a graph, or some of its nodes, as one Program, which is what is verified and proved."""

from __future__ import annotations

from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.networks.operators import operator
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.program import Program


def program_of(graph: Graph, name: str = "graph") -> Program:
    """The Program of a graph: inputs under their names, outputs y0, y1, ...

    Inputs that no result depends on are left out. Errors of the building blocks pass through.
    """
    builder = ProgramBuilder(name)
    values: dict[Value, NamedArray] = {}
    for position, entry in enumerate(graph.inputs):
        builder.input(entry.name, entry.type.shape, entry.type.dtype)
        hints = [f"{entry.name}{axis}" for axis in range(entry.type.rank)]
        values[Value(INPUTS, position)] = views.from_input(builder, entry.name, hints)
    for number, node in enumerate(graph.nodes):
        operands = [values[v] for v in node.inputs]
        results = operator(node.operator).over_program(builder, operands, node.values)
        values |= {Value(number, n): x for n, x in enumerate(results)}
    for n, value in enumerate(graph.outputs):
        views.output(builder, f"y{n}", values[value], graph.type_of(value).dtype)
    live = cone(builder.nodes, [o.node for o in builder.outputs])
    read = {
        t: None for n in live if builder.nodes[n].op == "load"
        for t in builder.nodes[n].access.tensors
    }  # fmt: skip
    for entry in graph.inputs:
        if entry.name not in read:
            del builder.inputs[entry.name]
    return builder.build()
