"""Nodes that a region's program refused, to be left outside of every region when the graph is cut
anew: a region of twenty operators is not lost for one of them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import torch
from torch.fx import Node

from mirage_py.dynamo.regions.nodes import CONSTANT, POSITION, VIEW, looks_up, tensors_of
from mirage_py.dynamo.regions.region_graph import RegionGraph
from mirage_py.dynamo.regions.regions import Cut, Region
from mirage_py.dynamo.serve.service import Entry
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
            found.update(dict.fromkeys(_to_leave(node, region, cut), entry.served.why))
    return found


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
