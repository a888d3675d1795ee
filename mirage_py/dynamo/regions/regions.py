"""The partition of a graph into regions of ours and an Inductor fallback, at the least cost.

The elements of a graph are put in a topological order and cut into runs by dynamic programming. A
run is a region, or it is left to the fallback: a matmul to a library, other operators as one fused
kernel. A contiguous run of a topological order is convex: nothing outside lies between two of its
members. Cost decides, never an operator's name.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

import torch
from torch.fx import Node

from mirage_py.dynamo.regions.common_dims import common_columns
from mirage_py.dynamo.regions.costs import Costs, GrowingRegion
from mirage_py.dynamo.regions.flow import Element, Flow, flows
from mirage_py.dynamo.regions.nodes import (
    ATTENTION,
    LEFT,
    PRODUCT,
    REDUCTION,
    WRITE,
    Facts,
    base_name,
    classify,
    is_copy,
    is_taken,
    sums_rows,
    tensors_of,
)
from mirage_py.dynamo.regions.places import Place
from mirage_py.reasons import Code, Reason
from mirage_py.targets import Target

# Operators of a program that the search goes through whole, behind one result and behind all:
# pipeline/partition/limits.py has the same bounds.
MAX_WEIGHT, _MAX_BESIDE = 24, 36
# A row of a product that is no longer than this stays in a block: another product may read it.
NARROW = 128
# Products of so many rows are bound by the tensor cores. An operand that is made in their kernel is
# made again for each tile of columns, and they wait for it: it is left to the kernel before.
MANY_ROWS = 128
_SOFTMAX = ("_softmax", "_safe_softmax", "softmax")


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that one program computes, in topological order, and what the model says of them.

    ``outputs`` are those whose values are needed outside. Times in microseconds: ``time_us`` as a
    region, ``rest_us`` the same nodes outside. ``products`` are those that are read in parts.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]
    time_us: float
    rest_us: float
    products: tuple[Node, ...] = ()

    @property
    def gain_us(self) -> float:
        """What the model expects the region to save."""
        return self.rest_us - self.time_us


@dataclass(frozen=True, slots=True)
class Cut:
    """A graph as regions and the nodes outside them; ``order`` is a topological order of all that
    computes.
    """

    facts: Mapping[Node, Facts]
    order: tuple[Node, ...]
    regions: tuple[Region, ...]


def cut(
    graph: torch.fx.Graph,
    target: Target,
    *,
    rest_fuses: bool,
    rest_tunes: bool = False,
    min_gain: float = 0.05,
    float64: bool = False,
    parts: bool = True,
    refused: Mapping[Node, Reason] | None = None,
    in_place: Collection[Node] = (),
    unparted: Collection[Node] = (),
) -> Cut:
    """The cheapest cut over all orders tried; between equals the first. Without ``parts`` nothing
    that a product made is read in parts (rotary positions) in its region, nor what the products
    ``unparted`` made; nodes that were ``refused`` are in no region. The nodes ``in_place`` are
    written to inputs of the graph by a region.
    """
    place = Place.PARTS if parts else Place.SAME
    how = _How(rest_fuses, rest_tunes, min_gain, place, frozenset(unparted))
    found = _cut(
        graph, target, how, classify(graph, float64=float64, refused=refused, in_place=in_place)
    )
    taken = {n: None for region in found.regions for n in region.nodes if n in in_place}
    if len(taken) == len(in_place):
        return found
    # What no region writes is left to Inductor, and stands elsewhere then.
    return cut(
        graph,
        target,
        rest_fuses=rest_fuses,
        rest_tunes=rest_tunes,
        min_gain=min_gain,
        float64=float64,
        parts=parts,
        refused=refused,
        in_place=taken,
        unparted=unparted,
    )


@dataclass(frozen=True, slots=True)
class _How:
    """What the cost of a cut depends on."""

    rest_fuses: bool
    rest_tunes: bool
    min_gain: float
    place: Place
    unparted: frozenset[Node]


def _cut(graph: torch.fx.Graph, target: Target, how: _How, facts: Mapping[Node, Facts]) -> Cut:
    best: tuple[float, Cut] | None = None
    for flow in flows(graph, facts):
        costs = Costs(flow, target, how.rest_fuses, how.min_gain, how.rest_tunes)
        cost, regions = _cheapest(flow, costs, how)
        if best is None or cost < best[0] - 1e-9:
            best = cost, Cut(facts, tuple(e.node for e in flow.elements), regions)
    assert best is not None
    return best[1]


def _cheapest(flow: Flow, costs: Costs, how: _How) -> tuple[float, tuple[Region, ...]]:
    """Dynamic programming over the places between elements: the cost, and the regions."""
    count = len(flow.elements)
    best = [0.0] + [inf] * count
    chosen: list[tuple[int, bool]] = [(0, False)] * (count + 1)
    for start in range(count):
        for end, rest_us, region_us in _runs(flow, costs, start, how, best):
            for cost, is_region in ((rest_us, False), (region_us, True)):
                if best[start] + cost < best[end] - 1e-9:
                    best[end] = best[start] + cost
                    chosen[end] = start, is_region
    found: list[Region] = []
    end = count
    while end:
        start, is_region = chosen[end]
        if is_region:
            found.append(_region(flow, costs, start, end))
        end = start
    return best[count], tuple(reversed(found))


def _runs(
    flow: Flow, costs: Costs, start: int, how: _How, best: Sequence[float]
) -> list[tuple[int, float, float]]:
    """Every run from a place: where it ends, its cost outside and as a region (infinity: none, or
    none that is cheaper than the ``best`` known way to get there).
    """
    first = flow.elements[start]
    if first.facts.kind == LEFT:
        return [(start + 1, 0.0, inf)]
    found = []
    run = _Run(flow, start, how)
    grown = GrowingRegion(costs, start)
    plain = True
    for end in range(start + 1, len(flow.elements) + 1):
        element = flow.elements[end - 1]
        fits = run.add(element)
        grown.add(element)
        plain = plain and not _is_product(element) and element.facts.kind != LEFT
        rest_us = costs.rest_us(start, end) if plain or end == start + 1 else inf
        if not fits and not plain and end > start + 1:
            break
        region_us = grown.us(end) if fits else inf
        if best[start] + region_us >= best[end] or not run.is_whole(end):
            region_us = inf
        found.append((end, rest_us, region_us))
        if end - start >= _MAX_BESIDE:
            break
    return found


def _region(flow: Flow, costs: Costs, start: int, end: int) -> Region:
    # Outside, the same nodes are cut as is cheapest there.
    rest = [0.0] + [inf] * (end - start)
    for place in range(start, end):
        for stop in range(place + 1, end + 1):
            alone = stop == place + 1
            if not alone and any(map(_is_product, flow.elements[place:stop])):
                break
            cost = rest[place - start] + costs.rest_us(place, stop)
            rest[stop - start] = min(rest[stop - start], cost)
    members = flow.elements[start:end]
    return Region(
        tuple(e.node for e in members),
        tuple(_result(e) for e in flow.outputs(start, end)),
        costs.region_us(start, end),
        rest[-1],
        _parted(members),
    )


def _parted(members: Sequence[Element]) -> tuple[Node, ...]:
    """The products of a region in which something that it made is read in parts."""
    inside = {e.node: e for e in members}
    products = tuple(n for n, e in inside.items() if e.facts.kind == PRODUCT)
    reads = (r for e in members for r in e.reads if r.source in inside)
    return products if any(r.place == Place.PARTS for r in reads) else ()


def _result(element: Element) -> Node:
    """The node of the value: of an operator with several results it is the first one of them."""
    parts = [n for n in element.node.users if n.target is operator.getitem and n.args[1] == 0]
    return parts[0] if parts else element.node


def _is_product(element: Element) -> bool:
    return element.facts.kind in (PRODUCT, ATTENTION)


def _is_wide(element: Element) -> bool:
    """Whether it is a product with weights that has several tiles of columns."""
    return base_name(element.node) in ("mm", "addmm") and element.shape[-1] > NARROW


class _Run:
    """A run that grows: whether it still fits in one kernel.

    ``busy`` says of each member that it follows a matmul in the run. Another product that reads
    it needs all of it, so it would wait for a kernel of its own; unless rows of it are short, or
    they go through a softmax, which is computed online. So would a reduction. What a product made
    is not read at two places in one kernel: that would compute it twice. All products of a kernel
    have the same rows, and columns that one grid goes over, where they stand side by side; and sums
    over rows stand apart from whatever works on one row. ``made`` says of each member that it is
    more than a copy of what is outside and no matmul is before it: products of many rows and
    columns read none of these. ``how.place`` is where what a product of few rows made may be read,
    but for those that are ``how.unparted``.
    """

    def __init__(self, flow: Flow, start: int, how: _How) -> None:
        self._flow = flow
        self._how = how
        self._may_part = True
        self._start = start
        self._weight = 0
        self._busy: dict[Node, bool] = {}
        self._in_parts: dict[Node, None] = {}
        self._online: dict[Node, bool] = {}
        self._made: dict[Node, bool] = {}
        self._rows: tuple[int, ...] | None = None
        self._columns: list[int] = []
        self._works: dict[bool, None] = {}
        self._writes = False
        self._fits = True

    def add(self, element: Element) -> bool:
        """Take the next element; False if from now on the run is no region."""
        self._fits = self._fits and is_taken(element.facts) and self._takes(element)
        return self._fits

    def is_whole(self, end: int) -> bool:
        """Whether its members hang together and kernels can write all that it leaves."""
        outputs = self._flow.outputs(self._start, end)
        floats = all(e.dtype is not None and e.dtype.is_floating_point for e in outputs)
        # Products of one value are one kernel, and so is all that is written to caches with what
        # shares an operand with it; other work the fallback fuses as well.
        has_products = self._rows is not None
        beside = has_products or self._writes
        if not floats or self._flow.pieces(self._start, end, beside=beside) != 1:
            return False
        # Of several results a kernel writes the first, if anything reads it.
        if any(len(tensors_of(_result(e))) != 1 for e in outputs):
            return False
        # What is written whole and read in parts would be computed for both.
        if any(e.node in self._in_parts for e in outputs):
            return False
        if has_products and (self._has_others(end) or self._looks_up_rows(end)):
            return False
        return self._weight <= MAX_WEIGHT or all(
            self._flow.weight_behind(e, self._start) <= MAX_WEIGHT for e in outputs
        )

    def _has_others(self, end: int) -> bool:
        """Whether a member neither follows a product nor leads to one: it has a grid of its own."""
        leads: dict[Node, None] = {}
        for element in reversed(self._flow.elements[self._start : end]):
            if _is_product(element) or element.node in leads:
                leads.update(dict.fromkeys(r.source for r in element.reads))
            elif not self._busy[element.node]:
                return True
        return False

    def _looks_up_rows(self, end: int) -> bool:
        """Whether several rows that are data are found anew in each tile of a product's columns:
        92.6 us on an H200 for 16 tokens, a norm and 4096 columns, and 11.4 behind the look-up.
        """
        members = self._flow.elements[self._start : end]
        several = prod(self._rows or ()) > 1
        return several and any(base_name(e.node) == "embedding" for e in members)

    def _takes(self, element: Element) -> bool:
        node = element.node
        self._weight += element.facts.weight
        inside = [r for r in element.reads if r.source in self._busy]
        # What is written is read by later kernels.
        if any(self._flow.writes(r.source) for r in inside):
            return False
        self._writes = self._writes or element.facts.kind == WRITE
        busy = [r for r in inside if self._busy[r.source]]
        softmax = base_name(node) in _SOFTMAX
        waits = _is_product(element) or (element.facts.kind == REDUCTION and not softmax)
        held = all(self._stays(element, r.source) for r in busy)
        self._busy[node] = bool(busy) or _is_product(element)
        passes = not _is_product(element) and any(self._online[r.source] for r in inside)
        self._online[node] = softmax or passes
        made = any(self._made[r.source] for r in inside)
        if made and _is_wide(element) and prod(element.shape[:-1]) > MANY_ROWS:
            return False
        self._made[node] = not self._busy[node] and (made or not is_copy(node))
        if (busy and waits and not held) or not self._same_grid(element):
            return False
        if not busy and not self._beside(element):
            return False
        # In parts a product of few rows is one for each part, and else it is computed twice.
        few = prod(self._rows or ()) <= MANY_ROWS
        self._may_part = self._may_part and node not in self._how.unparted
        allowed = self._how.place if few and self._may_part else Place.SAME
        self._in_parts.update({r.source: None for r in busy if r.place == Place.PARTS})
        return self._weight <= _MAX_BESIDE and all(r.place <= allowed for r in busy)

    def _same_grid(self, element: Element) -> bool:
        """Whether the blocks that make this element can be those of the others."""
        if _is_product(element):
            rows = element.shape[:-1]
            self._rows = self._rows or rows
            if prod(rows) != prod(self._rows):
                return False
        if _is_product(element) or element.facts.kind == REDUCTION:
            self._works[sums_rows(element.node)] = None
        return len(self._works) < 2

    def _beside(self, element: Element) -> bool:
        """Whether the columns of a product can be gone through with those of the others."""
        width = element.shape[-1] if element.facts.kind == PRODUCT and element.shape else 0
        if width > NARROW:
            self._columns.append(width)
        one_row = prod(self._rows or ()) == 1
        return not self._columns or common_columns(self._columns, one_row=one_row) > 0

    def _stays(self, element: Element, source: Node) -> bool:
        """Whether a value that follows a matmul can stay where it is for the next one."""
        if _is_product(element) and self._online[source]:
            return True
        shape = self._flow.elements[self._flow.place[source]].shape
        plain = len(shape) == 2 and base_name(element.node) in ("mm", "addmm")
        return plain and shape[-1] <= NARROW


def left_alone(cut: Cut) -> Sequence[tuple[str, int, Reason]]:
    """The operators outside regions: name, how many, why; the most frequent first."""
    inside = {n: None for r in cut.regions for n in r.nodes}
    counts: dict[tuple[str, Reason], int] = {}
    for node in cut.order:
        if node not in inside and node.target is not operator.getitem:
            facts = cut.facts[node]
            why = facts.reason or Reason(Code.SAVES_NOTHING)
            key = str(node.target), why
            counts[key] = counts.get(key, 0) + 1
    rows = [(name, count, why) for (name, why), count in counts.items()]
    return sorted(rows, key=lambda row: -row[1])
