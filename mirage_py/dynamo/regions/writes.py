"""Writes to inputs, which end a graph, set aside while it is cut.

AOTAutograd makes a graph functional; what a model writes to its inputs (a cache of keys and values)
comes last, as ``copy_`` to an input. A cut may order everything before them as it likes.

What is written at consecutive positions of an axis, the first of which may be data (``index_copy``,
``index_put`` or a slice of a cache), a region may write by itself, into the input: an output in
place. Then the copy has nothing left to do.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from mirage_py.dynamo.regions.nodes import placing


@dataclass(frozen=True, slots=True)
class Write:
    """The input with this place is overwritten; ``meta`` is that of the node."""

    place: int
    meta: dict[str, Any]


def take_writes(graph: Graph) -> tuple[Write, ...]:
    """Remove the writes to inputs; what they wrote is returned by the graph, after its results."""
    _drop_copies_to_slices(graph)
    _give_all_axes(graph)
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


def _drop_copies_to_slices(graph: Graph) -> None:
    """A slice that is assigned to is read only to be copied to: what is copied is put there."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.slice_scatter.default):
        copy = node.args[1]
        if not isinstance(copy, Node) or copy.target is not torch.ops.aten.copy.default:
            continue
        to, value = copy.args[:2]
        if isinstance(to, Node) and isinstance(value, Node):
            one, other = to.meta["val"], value.meta["val"]
            alike = one.dtype == other.dtype and one.device == other.device
            if alike and one.shape == other.shape:
                node.replace_input_with(copy, value)
                for unread in (copy, to):
                    if not unread.users and unread.op == "call_function":
                        graph.erase_node(unread)


def _give_all_axes(graph: Graph) -> None:
    """Values that are put at positions, with the leading axes that torch would add."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.index_put.default):
        value = node.args[2]
        missing = _axes_at(node.args[0], node.args[1]) - value.meta["val"].dim()
        for _ in range(missing):
            with graph.inserting_before(node):
                wider = graph.call_function(torch.ops.aten.unsqueeze.default, (value, 0))
            wider.meta["val"] = value.meta["val"].unsqueeze(0)
            node.replace_input_with(value, wider)
            value = wider


def _axes_at(whole: Node, indices: Sequence[Node | None]) -> int:
    """How many axes a tensor has at indices, of which all together make one place in it."""
    given = [index.meta["val"] for index in indices if index is not None]
    masks = [index for index in given if index.dtype in (torch.bool, torch.uint8)]
    taken = len(given) - len(masks) + sum(mask.dim() for mask in masks)
    made = max(1 if index.dtype in (torch.bool, torch.uint8) else index.dim() for index in given)
    return int(whole.meta["val"].dim() - taken + made)


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
    """Whether a node is ``target`` with places of one axis written, one after the other."""
    found = placing(node) if node.all_input_nodes[:1] == [target] else None
    if found is None or found.value is target:
        return False
    whole, part = target.meta["val"], found.value.meta["val"]
    alike = whole.dtype == part.dtype and whole.device == part.device
    sizes = [s for t in (whole, part) for s in (*t.shape, *t.stride())]
    if not alike or not whole.dim() or not all(isinstance(s, int) for s in sizes):
        return False
    count = part.shape[found.axis] if part.dim() == whole.dim() else 0
    expected = [*whole.shape]
    expected[found.axis] = count
    if [*part.shape] != expected or not count:
        return False
    return isinstance(found.positions, int) or found.positions.meta["val"].numel() == count


def _results(graph: Graph) -> tuple[Node | Any, ...]:
    (results,) = graph.output_node().args
    assert isinstance(results, (tuple, list))
    return tuple(results)


def _set_results(graph: Graph, results: Sequence[Node | Any]) -> None:
    node = graph.output_node()
    (before,) = node.args
    node.args = (list(results) if isinstance(before, list) else tuple(results),)
