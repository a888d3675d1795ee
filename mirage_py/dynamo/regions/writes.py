"""Writes to inputs, which end a graph, set aside while it is cut.

AOTAutograd makes a graph functional; what a model writes to its inputs (a cache of keys and values)
comes last, as ``copy_`` to an input. A cut may order everything before them as it likes.

What is written at one position that is data (``index_copy`` of a cache) a region may write by
itself, into the input: an output in place. Then the copy has nothing left to do.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
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
            if value is inputs[write.place]:  # a region has written it
                continue
            node = graph.call_function(torch.ops.aten.copy_.default, (inputs[write.place], value))
            node.meta = dict(write.meta)
    _set_results(graph, results[:first])


def count_together(graph: Graph, writes: Sequence[Write]) -> None:
    """Let one operator add the same number to all inputs that count (how many tokens each layer's
    cache holds), of a graph whose ``writes`` are taken: one kernel of Inductor, not one for each.
    """
    if not writes:
        return
    results = list(_results(graph))
    first = len(results) - len(writes)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place in range(first, len(results)):
        if _is_count(results[place]):
            node = results[place]
            value = node.meta["val"]
            groups.setdefault((node.args[1], value.dtype, value.device), []).append(place)
    for (number, *_), places in groups.items():
        if len(places) > 1:
            old = [results[place] for place in places]
            for place, new in zip(places, _added(graph, old, number), strict=True):
                results[place] = new
    _set_results(graph, results)
    graph.eliminate_dead_code()


def _is_count(node: Node | Any) -> bool:
    """Whether a node is an input of one integer with a number added, for the graph's results."""
    if not isinstance(node, Node) or node.target is not torch.ops.aten.add.Tensor or node.kwargs:
        return False
    counted, number = node.args
    is_counted = isinstance(counted, Node) and counted.op == "placeholder"
    value = node.meta["val"]
    is_one = value.numel() == 1 and value.dtype in (torch.int32, torch.int64)
    alone = [n.op for n in node.users] == ["output"]
    return bool(is_counted and isinstance(number, int) and is_one and alone)


def _added(graph: Graph, old: Sequence[Node], number: int) -> list[Node]:
    made = []
    with graph.inserting_before(graph.output_node()):
        operands = [n.args[0] for n in old]
        together = graph.call_function(torch.ops.aten._foreach_add.Scalar, (operands, number))  # noqa: SLF001
        together.meta["val"] = [n.meta["val"] for n in old]
        for place, node in enumerate(old):
            part = graph.call_function(operator.getitem, (together, place))
            part.meta = dict(node.meta)
            made.append(part)
    return made


def in_place(graph: Graph, writes: Sequence[Write]) -> Mapping[Node, Node]:
    """Of what ``take_writes`` has taken the nodes that a region may write, and the inputs that they
    are written to: nothing else reads these inputs, and they are written once.
    """
    if not writes:
        return {}
    inputs, results = graph.find_nodes(op="placeholder"), _results(graph)
    found: dict[Node, Node] = {}
    for write, value in zip(writes, results[-len(writes) :], strict=True):
        target = inputs[write.place]
        is_only = list(target.users) == [value] and results.count(value) == 1
        if is_only and _is_one_place(value, target):
            found[value] = target
    return found


def _is_one_place(node: Node, target: Node) -> bool:
    """Whether a node is ``target`` with one position of an axis written."""
    if node.target is not torch.ops.aten.index_copy.default or node.args[0] is not target:
        return False
    _, axis, index, value = node.args
    if not isinstance(index, Node) or not isinstance(value, Node) or value is target:
        return False
    whole, at, part = (n.meta["val"] for n in (target, index, value))
    alike = whole.dtype == part.dtype and whole.device == part.device
    sizes = [s for t in (whole, part) for s in (*t.shape, *t.stride())]
    if not alike or not whole.dim() or not all(isinstance(s, int) for s in sizes):
        return False
    return bool(at.numel() == 1 and part.shape[axis] == 1)


def _results(graph: Graph) -> tuple[Node | Any, ...]:
    (results,) = graph.output_node().args
    assert isinstance(results, (tuple, list))
    return tuple(results)


def _set_results(graph: Graph, results: Sequence[Node | Any]) -> None:
    node = graph.output_node()
    (before,) = node.args
    node.args = (list(results) if isinstance(before, list) else tuple(results),)
