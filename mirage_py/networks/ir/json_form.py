"""Graphs as JSON documents, and back."""

from __future__ import annotations

from typing import Any

from mirage_py.errors import FormatError, MirageError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.ugraph.ir.dtypes import dtype


def graph_document(graph: Graph) -> dict[str, Any]:
    """A document of lists, dictionaries, numbers and texts; a value is [node, index]."""
    return {
        "inputs": [
            {"name": i.name, "shape": list(i.type.shape), "dtype": str(i.type.dtype)}
            for i in graph.inputs
        ],
        "constants": list(graph.constants),
        "nodes": [
            {
                "operator": node.operator,
                "attributes": {
                    name: list(value) if isinstance(value, tuple) else value
                    for name, value in node.attributes
                },
                "inputs": [[v.node, v.index] for v in node.inputs],
            }
            for node in graph.nodes
        ],
        "outputs": [[v.node, v.index] for v in graph.outputs],
    }


def graph_from(document: Any) -> Graph:
    """The graph of a document; FormatError where it is none."""
    builder = GraphBuilder()
    place: dict[tuple[int, int], Value] = {}
    try:
        for position, entry in enumerate(document["inputs"]):
            name = str(entry["name"])
            constant = name in document["constants"]
            kind = dtype(entry["dtype"])
            value = builder.input(name, entry["shape"], kind, constant=constant)
            place[INPUTS, position] = value
        for number, node in enumerate(document["nodes"]):
            operands = [place[n, index] for n, index in node["inputs"]]
            results = builder.apply_all(node["operator"], *operands, **node["attributes"])
            place |= {(number, n): value for n, value in enumerate(results)}
        return builder.build(*(place[n, index] for n, index in document["outputs"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"it is no graph of operators: {error!r}") from None
    except FormatError:
        raise
    except MirageError as error:
        raise FormatError(f"it is no graph of operators: {error}") from None
