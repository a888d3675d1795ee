"""Evaluation of graphs: over tensors of torch, and over a finite field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mirage_py.networks.ir.graph import INPUTS, Graph, Node, Value
from mirage_py.networks.operators import operator
from mirage_py.ugraph.field import FieldArray, FieldOps

T = TypeVar("T")


def over_torch(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The outputs for tensors of torch, one for each input."""
    return _evaluated(graph, inputs, lambda n, xs: operator(n.operator).over_torch(xs, n.values))


def over_field(graph: Graph, inputs: Sequence[FieldArray], ops: FieldOps) -> list[FieldArray]:
    """The outputs for arrays of a trial; DivisionByZero asks for other inputs."""
    return _evaluated(
        graph, inputs, lambda n, xs: operator(n.operator).over_field(ops, xs, n.values)
    )


def random_inputs(graph: Graph, ops: FieldOps) -> list[FieldArray]:
    """Independent random elements: a function of the trial and of each input's name."""
    return [ops.random(entry.type.shape, entry.name) for entry in graph.inputs]


def _evaluated(
    graph: Graph, inputs: Sequence[T], apply: Callable[[Node, list[T]], Sequence[T]]
) -> list[T]:
    values = {Value(INPUTS, n): x for n, x in enumerate(inputs)}
    for number, node in enumerate(graph.nodes):
        results = apply(node, [values[v] for v in node.inputs])
        values |= {Value(number, n): x for n, x in enumerate(results)}
    return [values[v] for v in graph.outputs]
