"""What kernels of regions ask the L2 for: weights that later kernels of the graph multiply by.

Between two kernels, and beside one that reads little, memory would be idle. So each region of a
chain asks for a share more than has been asked for before it, when all it reads itself has come
(codegen/cuda/prelude/prefetch.cuh). It says nothing of values: what is asked for and not read is
lost time and no more. A call of a region has the tensors and what of them behind its inputs
(serve/region_op.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch.fx import Graph, Node

from mirage_py.dynamo.regions.region_graph import RegionGraph
from mirage_py.dynamo.serve.chain import all_at_once, asking_bytes
from mirage_py.dynamo.serve.region_op import calls_region, inputs_of_call, with_later
from mirage_py.runtime.launch.prefetch import MOST_SPANS
from mirage_py.ugraph.ir.plan import Plan

# What a kernel asks for: about what memory gives in the time that it takes to begin and to end.
_SHARE_BYTES = 8 << 20
# What has been asked for and not been read has to stay in the L2, beside what is being read.
_MOST_AHEAD_BYTES = 32 << 20
_SMALLEST_BYTES = 256 << 10
# Pieces of rows are multiples of this.
_PIECE_BYTES = 256
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_VIEWS = ("t", "transpose", "permute", "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")


@dataclass(slots=True)
class _Reader:
    """A node that multiplies by ``weights``, and the part of them that has been asked for; readers
    whose blocks all run at once read the first columns of all rows first.
    """

    node: Node
    weights: tuple[Node, ...]
    by_columns: bool
    asked: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(_bytes(w) for w in self.weights)


def ask_for_later_weights(
    graph: Graph, regions: Sequence[RegionGraph], link_of: Callable[[str], Plan | None]
) -> None:
    """Write to the calls of regions in a graph what their kernels ask for; ``link_of`` a region's
    key is its plan in the chain, if it has one.
    """
    weights = {r.key: _weight_numbers(r.module.graph) for r in regions}
    links = {key: link_of(key) for key in weights}
    readers = []
    for node in graph.nodes:
        found: Sequence[Node] = ()
        link = None
        if calls_region(node):
            key = node.args[-1]
            given, link = inputs_of_call(node), links[key]
            found = [given[number] for number in weights[key]]
        elif _is_product(node):
            found = node.all_input_nodes
        whole = dict.fromkeys(w for n in found if _is_weight(w := _whole(n)))
        if whole or calls_region(node):
            readers.append(_Reader(node, tuple(whole), link is not None and all_at_once(link)))
    shares = _shares(readers, links)
    for number, reader in enumerate(readers):
        if shares[number]:
            asked = _asked(readers[number + 1 :], shares[number])
            if asked:
                with_later(reader.node, asked)


def _shares(readers: Sequence[_Reader], links: Mapping[str, Plan | None]) -> list[float]:
    """How much each reader asks for; what is too much for one, of few blocks, goes to the region in
    front of it.
    """
    shares = []
    more = 0.0
    for reader in reversed(readers):
        link = links[reader.node.args[-1]] if calls_region(reader.node) else None  # type: ignore[index]
        wanted = _SHARE_BYTES + more
        share = 0.0 if link is None else min(wanted, asking_bytes(link))
        more = 0.0 if link is None else min(wanted - share, _SHARE_BYTES)
        shares.append(share)
    return shares[::-1]


def _asked(later: Sequence[_Reader], share: float) -> list[tuple[Node, tuple[int, ...]]]:
    """What to ask for of what is read later: a tensor, its rows from one to another one, and the
    bytes of each row from one to another one.
    """
    left = min(share, _MOST_AHEAD_BYTES - sum(r.bytes * r.asked for r in later))
    found: list[tuple[Node, tuple[int, ...]]] = []
    for reader in later:
        if left < _SMALLEST_BYTES or len(found) + len(reader.weights) > MOST_SPANS:
            break
        if not reader.weights or reader.asked >= 1:
            continue
        until = min(1.0, reader.asked + left / reader.bytes)
        left -= (until - reader.asked) * reader.bytes
        for weight in reader.weights:
            rows, width = _rows_and_width(weight)
            if reader.by_columns:
                edges = (
                    0,
                    rows,
                    _part(width, reader.asked, _PIECE_BYTES),
                    _part(width, until, _PIECE_BYTES),
                )
            else:
                edges = (_part(rows, reader.asked, 1), _part(rows, until, 1), 0, width)
            if edges[0] < edges[1] and edges[2] < edges[3]:
                found.append((weight, edges))
        reader.asked = until
    return found


def _part(whole: int, share: float, piece: int) -> int:
    return min(whole, round(whole * share / piece) * piece)


def _weight_numbers(graph: Graph) -> list[int]:
    """The inputs of a region that it multiplies by as they are."""
    inputs = {n: number for number, n in enumerate(graph.find_nodes(op="placeholder"))}
    products = (n.all_input_nodes for n in graph.nodes if _is_product(n))
    found = dict.fromkeys(_whole(n) for n in chain.from_iterable(products))
    return [inputs[n] for n in found if n in inputs]


def _is_product(node: Node) -> bool:
    return _name(node) in _PRODUCTS


def _whole(node: Node) -> Node:
    """The tensor that a chain of views begins at."""
    while _name(node) in _VIEWS:
        node = node.all_input_nodes[0]
    return node


def _name(node: Node) -> str:
    packet = getattr(node.target, "overloadpacket", None)
    return packet.__name__ if node.op == "call_function" and packet is not None else ""


def _is_weight(node: Node) -> bool:
    """Whether it is there before the graph is called: rows one after the other, of whole pieces."""
    value = node.meta.get("val")
    if node.op not in ("placeholder", "get_attr") or not isinstance(value, torch.Tensor):
        return False
    if value.dim() != 2 or not all(isinstance(n, int) for n in (*value.shape, *value.stride())):
        return False
    rows, width = _rows_and_width(node)
    aligned = width % _PIECE_BYTES == 0 and value.stride() == (value.shape[1], 1)
    return aligned and rows * width >= _SMALLEST_BYTES


def _rows_and_width(node: Node) -> tuple[int, int]:
    value: torch.Tensor = node.meta["val"]
    return value.shape[0], value.shape[1] * value.element_size()


def _bytes(node: Node) -> int:
    rows, width = _rows_and_width(node)
    return rows * width
