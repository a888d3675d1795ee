"""Writes to inputs, which end a graph, set aside while it is cut.

AOTAutograd makes a graph functional; what a model writes to its inputs (a cache of keys and values)
comes last, as ``copy_`` to an input. A cut may order everything before them as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node


@dataclass(frozen=True, slots=True)
class Write:
    """The input with this place is overwritten; ``meta`` is that of the node."""

    place: int
    meta: dict[str, Any]


def take_writes(graph: Graph) -> tuple[Write, ...]:
    """Remove the writes to inputs; what they wrote is returned by the graph, after its results."""
    inputs = {n: place for place, n in enumerate(graph.find_nodes(op="placeholder"))}
    writes = []
    values: list[Any] = []
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        target, value = node.args[:2]
        if target in inputs and not node.users and len(node.args) == 2 and not node.kwargs:
            writes.append(Write(inputs[target], node.meta))
            values.append(value)
            graph.erase_node(node)
    if writes:
        _set_results(graph, (*_results(graph), *values))
    return tuple(writes)


def put_writes(graph: Graph, writes: Sequence[Write]) -> None:
    """What ``take_writes`` has taken, back in its place; ``graph`` has the same inputs."""
    if not writes:
        return
    inputs = graph.find_nodes(op="placeholder")
    results = _results(graph)
    first = len(results) - len(writes)
    with graph.inserting_before(graph.output_node()):
        for write, value in zip(writes, results[first:], strict=True):
            node = graph.call_function(torch.ops.aten.copy_.default, (inputs[write.place], value))
            node.meta = dict(write.meta)
    _set_results(graph, results[:first])


def _results(graph: Graph) -> tuple[Node | Any, ...]:
    (results,) = graph.output_node().args
    assert isinstance(results, (tuple, list))
    return tuple(results)


def _set_results(graph: Graph, results: Sequence[Node | Any]) -> None:
    node = graph.output_node()
    (before,) = node.args
    node.args = (list(results) if isinstance(before, list) else tuple(results),)
