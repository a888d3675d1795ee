"""Nodes that a region's program refused, to be left outside of every region when the graph is cut
anew: a region of twenty operators is not lost for one of them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import torch
from torch.fx import Graph, GraphModule, Node

from mirage_py.dynamo.regions.nodes import CONSTANT, POSITION, VIEW, looks_up, tensors_of
from mirage_py.dynamo.regions.region_graph import RegionGraph
from mirage_py.dynamo.regions.region_program import (
    RefusedNodeError,
    TensorLayout,
    region_program,
)
from mirage_py.dynamo.regions.regions import Cut, Region
from mirage_py.dynamo.serve.region_call import layouts_of
from mirage_py.dynamo.serve.service import Entry
from mirage_py.errors import InputError, UnsupportedError, why_failed
from mirage_py.reasons import Reason


def refusals(
    cut: Cut, graphs: Sequence[RegionGraph], entries: Mapping[str, Entry]
) -> dict[Node, Reason]:
    """The nodes of the graph around the regions, and what was said of them."""
    found: dict[Node, Reason] = {}
    for region, graph in zip(cut.regions, graphs, strict=True):
        entry = entries[graph.key]
        if entry.refused is not None:
            node = graph.origins[list(graph.module.graph.nodes)[entry.refused]]
            found |= _of_region(node, entry.served.why, region, graph, cut)
    return found


def _of_region(
    node: Node, why: Reason, region: Region, graph: RegionGraph, cut: Cut
) -> dict[Node, Reason]:
    """The node, and those that the program refuses where the ones before are data: a graph that is
    cut anew for each single one is cut as often as it has operators of their kind.
    """
    found: dict[Node, Reason] = {}
    rest = _Rest(graph)
    while True:
        left = [n for n in _to_leave(node, region, cut) if n not in found]
        found.update(dict.fromkeys(left, why))
        if not left or not all(map(rest.make_data, left)):
            return found
        try:
            region_program(rest.module(), rest.layouts())
        except RefusedNodeError as error:
            further = rest.origin(error.number)
            if further is None:
                return found
            node, why = further, why_failed(error)
        except (UnsupportedError, InputError):
            return found
        else:
            return found


class _Rest:
    """A copy of a region's graph, of which nodes become inputs."""

    def __init__(self, graph: RegionGraph) -> None:
        self._graph = Graph()
        copies: dict[Node, Node] = {}
        self._graph.output(self._graph.graph_copy(graph.module.graph, copies))
        self._copies = {n: copies[c] for c, n in graph.origins.items() if c in copies}
        self._root = graph.module

    def make_data(self, node: Node) -> bool:
        """Take a node of the graph around the region for a tensor from outside; False where it is
        none.
        """
        copy = self._copies.get(node)
        if copy is None or not isinstance(node.meta.get("val"), torch.Tensor):
            return False
        taken = len(self._graph.find_nodes(op="placeholder"))
        with self._graph.inserting_before(copy):
            data = self._graph.placeholder(f"in{taken}")
        data.meta["val"] = node.meta["val"]
        copy.replace_all_uses_with(data)
        self._graph.eliminate_dead_code()
        return True

    def module(self) -> GraphModule:
        """What is left of the region."""
        return GraphModule(self._root, self._graph, "Region")

    def layouts(self) -> list[TensorLayout | int]:
        """Of its inputs."""
        return layouts_of([n.meta["val"] for n in self._graph.find_nodes(op="placeholder")])

    def origin(self, number: int) -> Node | None:
        """The node around the region that a node of this graph was copied from."""
        copy = list(self._graph.nodes)[number]
        return next((n for n, c in self._copies.items() if c is copy), None)


def _to_leave(node: Node, region: Region, cut: Cut) -> list[Node]:
    """A refused node; of a look-up rather the positions that are computed in its region, as those
    computed outside are data, which every look-up takes.
    """
    made = [_computed(n, cut) for n in node.all_input_nodes[1:] if looks_up(node) and _counts(n)]
    inside = [n for n in made if n in region.nodes]
    constant = [n for n in made if cut.facts[n].kind in (CONSTANT, POSITION)]
    return inside or constant or [node]


def _counts(node: Node) -> bool:
    return all(t.dtype in (torch.int32, torch.int64) for t in tensors_of(node))


def _computed(node: Node, cut: Cut) -> Node:
    """What a chain of views begins at."""
    while cut.facts[node].kind == VIEW and node.target is not operator.getitem:
        node = node.all_input_nodes[0]
    return node
