"""Inputs of a region that no preceding kernel writes while the region may already run.

A kernel that starts early may read these before it waits. It has to hold of such an input that

* it is an input of the graph around the region, or a constant of it, which the graph does not
  write; views of it count, too;
* what wrote it before the graph was called has ended. That is so once any kernel of the graph has
  begun, or has waited and let others start. So the region must need the result of another one: its
  kernels, by whomever, lie in front, and all later kernels begin after them.

Graphs of training are left out: Inductor may keep results where inputs of backward graphs were.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from torch.fx import Graph, Node

from mirage_py.dynamo.regions.nodes import VIEW, Facts
from mirage_py.dynamo.regions.region_graph import RegionGraph
from mirage_py.dynamo.regions.regions import Cut


def with_constants(
    graphs: Sequence[RegionGraph], cut: Cut, written: Collection[int]
) -> list[RegionGraph]:
    """The regions of a cut with their constants, which their keys name: regions of one content have
    those that all of them have. The graph around them overwrites its inputs with the numbers
    ``written``, apart from what its nodes say.
    """
    if not graphs:
        return []
    graph = graphs[0].outputs[0].graph
    lasting = _never_written(graph, written)
    behind = dict.fromkeys(n for region in cut.regions for n in region.nodes)
    for node in graph.nodes:
        if any(n in behind for n in node.all_input_nodes):
            behind[node] = None
    shared: dict[str, set[int]] = {}
    for region in graphs:
        is_behind = any(n in behind for n in region.inputs)
        sources = enumerate(_whole(n, cut.facts) for n in region.inputs)
        own = {number for number, n in sources if is_behind and n in lasting}
        shared[region.key] = shared.get(region.key, own) & own
    return [_told(region, tuple(sorted(shared[region.key]))) for region in graphs]


def _told(region: RegionGraph, numbers: tuple[int, ...]) -> RegionGraph:
    key = "-".join([region.key, *map(str, numbers)])
    return replace(region, key=key, constants=numbers)


def _never_written(graph: Graph, written: Collection[int]) -> Mapping[Node, None]:
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    changed = {
        n: None
        for node in graph.nodes
        if getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        for n in node.all_input_nodes
    }
    kept = [n for number, n in enumerate(inputs) if number not in written]
    held = [n for n in graph.nodes if n.op == "get_attr"]
    return {n: None for n in (*kept, *held) if n not in changed}


def _whole(node: Node, facts: Mapping[Node, Facts]) -> Node:
    """The tensor that a chain of views begins at."""
    while node.op == "call_function" and facts[node].kind == VIEW:
        node = node.all_input_nodes[0]
    return node
