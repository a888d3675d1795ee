"""A graph as the partition sees it: computed values in topological order, with their readers.

Views, positions and sizes are transparent: they cost nothing, and whoever needs one makes it. What
is left are the *elements*: operators that compute, and those that stay outside of regions.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf

import torch
from torch.fx import Node

from mirage_py.dynamo.regions.nodes import (
    ATTENTION,
    CONSTANT,
    LEFT,
    POSITION,
    PRODUCT,
    SYMBOL,
    VIEW,
    WRITE,
    Facts,
    bytes_of,
    looks_up,
    shape_of,
    tensors_of,
)
from mirage_py.dynamo.regions.places import Place, place_of_reads


@dataclass(frozen=True, slots=True)
class Read:
    """One element reads a value: ``bytes`` of it, at a ``place``."""

    source: Node
    bytes: int
    place: Place


@dataclass(frozen=True, slots=True)
class Element:
    """A node that computes something, or stays outside of regions (kind ``left``)."""

    node: Node
    facts: Facts
    reads: tuple[Read, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype | None

    @property
    def is_half(self) -> bool:
        """Whether it is of a type that tensor cores multiply."""
        return self.dtype in (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Flow:
    """Elements in a topological order; ``last`` is the place where each is needed last, infinity
    for what the graph returns.
    """

    elements: tuple[Element, ...]
    place: Mapping[Node, int]
    last: tuple[float, ...]

    def border_bytes(self, start: int, end: int) -> int:
        """What the elements from one place to another read from outside and leave for outside."""
        read: dict[Node, int] = {}
        total = 0
        for number in range(start, end):
            element = self.elements[number]
            for r in element.reads:
                if self.place.get(r.source, -1) < start:
                    read[r.source] = max(read.get(r.source, 0), r.bytes)
            if self.last[number] >= end:
                total += element.facts.bytes
        return total + sum(read.values())

    def pieces(self, start: int, end: int, *, beside: bool = False) -> int:
        """How many groups of the elements from one place to another have nothing to do with each
        other: no value of one is read in another, nor, with ``beside``, one value in both.
        """
        group = {number: number for number in range(start, end)}
        first_reader: dict[Node, int] = {}

        def root(number: int) -> int:
            while group[number] != number:
                number = group[number]
            return number

        for number in range(start, end):
            for read in self.elements[number].reads:
                source = self.place.get(read.source, -1)
                if source < start and beside:
                    source = first_reader.setdefault(read.source, number)
                if source >= start:
                    group[root(source)] = root(number)
        return sum(group[n] == n for n in group)

    def weight_behind(self, element: Element, start: int) -> int:
        """Of the elements from a place on those that lead to one of them, as operators."""
        behind = {element.node: None}
        for number in range(self.place[element.node], start - 1, -1):
            if self.elements[number].node in behind:
                behind.update(dict.fromkeys(r.source for r in self.elements[number].reads))
        members = self.elements[start : self.place[element.node] + 1]
        return sum(e.facts.weight for e in members if e.node in behind)

    def writes(self, node: Node) -> bool:
        """Whether an element writes to an input of the graph."""
        return self.elements[self.place[node]].facts.kind == WRITE

    def outputs(self, start: int, end: int) -> list[Element]:
        """The elements from one place to another that are needed after it."""
        return [self.elements[n] for n in range(start, end) if self.last[n] >= end]


def flows(graph: torch.fx.Graph, facts: Mapping[Node, Facts]) -> tuple[Flow, ...]:
    """The graph in some topological orders; a cut may be possible in one and not in another.

    As written, but with what stays outside of regions as early as it can be; with products that
    wait for the same others next to each other; and by depth first from the results, so that what
    leads to one operator only stands right before it. A graph that writes to tensors keeps its
    order.
    """
    sources = _sources(graph, facts)
    elements = [_element(n, facts, sources) for n in graph.nodes if _is_element(n, facts[n])]
    result = next(n for n in graph.nodes if n.op == "output")
    wanted = {s: None for n in result.all_input_nodes for s in sources[n]}
    orders = [elements]
    calls = [n for n in graph.nodes if n.op == "call_function"]
    # Random numbers may be drawn in another order.
    if not any(n.is_impure(impure_random=False) for n in calls):
        orders = [
            _left_first(elements),
            _products_together(elements),
            _depth_first(elements, list(wanted)),
        ]
    return tuple(_flow(order, wanted) for order in orders)


def _is_element(node: Node, facts: Facts) -> bool:
    return node.op == "call_function" and facts.kind not in (
        SYMBOL,
        VIEW,
        CONSTANT,
        POSITION,
    )


def _element(
    node: Node, facts: Mapping[Node, Facts], sources: Mapping[Node, Mapping[Node, Place]]
) -> Element:
    reads: dict[Node, Read] = {}
    for operand in node.all_input_nodes:
        size = sum(map(bytes_of, tensors_of(operand)))
        if looks_up(node) or facts[node].kind == WRITE:
            size = min(size, facts[node].bytes)
        for source, place in sources[operand].items():
            before = reads.get(source, Read(source, 0, Place.SAME))
            place = max(place, before.place, place_of_reads(node))
            reads[source] = Read(source, max(size, before.bytes), place)
    tensors = tensors_of(node)
    first = tensors[0] if tensors else None
    return Element(
        node,
        facts[node],
        tuple(reads.values()),
        () if first is None else shape_of(first),
        None if first is None else first.dtype,
    )


def _sources(
    graph: torch.fx.Graph, facts: Mapping[Node, Facts]
) -> dict[Node, Mapping[Node, Place]]:
    """The values that are read where a node is, through views; and at which place views read
    them.
    """
    found: dict[Node, Mapping[Node, Place]] = {}
    for node in graph.nodes:
        kind, own = facts[node].kind, dict[Node, Place]()
        if kind in (VIEW, POSITION):
            # Of several results of an operator each is one.
            place = Place.SAME if node.target is operator.getitem else place_of_reads(node)
            for operand in node.all_input_nodes:
                for source, further in found[operand].items():
                    own[source] = max(own.get(source, place), place, further)
        elif kind not in (CONSTANT, SYMBOL) and node.op not in ("output", "get_attr"):
            own[node] = Place.SAME
        found[node] = own
    return found


def _flow(order: Sequence[Element], wanted: Mapping[Node, None]) -> Flow:
    place = {e.node: n for n, e in enumerate(order)}
    last = [float(n) for n in range(len(order))]
    for number, element in enumerate(order):
        for read in element.reads:
            if read.source in place:
                last[place[read.source]] = max(last[place[read.source]], float(number))
    for node in wanted:
        if node in place:
            last[place[node]] = inf
    return Flow(tuple(order), place, tuple(last))


def _left_first(elements: Sequence[Element]) -> list[Element]:
    """The order as written; what stays outside of regions goes to where its operands are ready."""
    place = {e.node: n for n, e in enumerate(elements)}
    key: dict[Node, tuple[int, int]] = {}
    for number, element in enumerate(elements):
        key[element.node] = (number, 0)
        if element.facts.kind == LEFT:
            before = [key[r.source] for r in element.reads if r.source in place]
            key[element.node] = (max(before, default=(-1, 0))[0], number + 1)
    return sorted(elements, key=lambda e: key[e.node])


def _products_together(elements: Sequence[Element]) -> list[Element]:
    """By the number of matmuls before each, in each step the products first: those of queries,
    keys and values stand together, though each has a norm of its own before it. Of the others what
    the next products read comes last, so that it stands right before them.
    """
    depth: dict[Node, int] = {}
    readers: dict[Node, list[Element]] = {e.node: [] for e in elements}
    for element in elements:
        before = max((depth.get(r.source, 0) for r in element.reads), default=0)
        depth[element.node] = before + _is_product(element)
        for read in element.reads:
            readers.get(read.source, []).append(element)
    needed = {
        node: min((2 * depth[e.node] - _is_product(e) for e in read), default=2 * len(elements))
        for node, read in readers.items()
    }
    blocked = _blocked(elements)
    steps: dict[int, list[Element]] = {}
    for element in elements:
        steps.setdefault(depth[element.node], []).append(element)
    order: list[Element] = []
    for step in sorted(steps):
        order += [e for e in steps[step] if _is_product(e)]
        others = {e.node: e for e in steps[step] if not _is_product(e)}
        # What is written to caches stands with what the next products read, before its readers.
        writes = [n for n in others if others[n].facts.kind == WRITE]
        needed.update(dict.fromkeys(writes, 2 * step + 1))
        ends = [n for n in others if not any(e.node in others for e in readers[n])]
        ends = list(dict.fromkeys([*writes, *ends]))
        ends.sort(key=lambda n: (-needed[n], others[n].facts.kind != LEFT))
        roots: list[Node] = []
        for _, together in groupby(ends, needed.__getitem__):
            group = list(together)
            lefts = {n: _left_over(n, others) for n in group}
            roots += [n for n in group if not lefts[n]]
            # Together, so that it stands between no two of what the next products read.
            roots += [left for n in group for left in lefts[n]]
            roots += [n for n in group if lefts[n]]
        order += _operands_first(roots, others, blocked)
    return order


def _left_over(node: Node, among: Mapping[Node, Element]) -> list[Node]:
    """The nodes outside of regions among those that lead to a node, itself included."""
    seen = {node: None}
    todo = [node]
    while todo:
        for read in among[todo.pop()].reads:
            if read.source in among and read.source not in seen:
                seen[read.source] = None
                todo.append(read.source)
    return [n for n in among if n in seen and among[n].facts.kind == LEFT]


def _depth_first(elements: Sequence[Element], wanted: Sequence[Node]) -> list[Element]:
    """Operands right before their readers; those that follow something outside of regions first."""
    by_node = {e.node: e for e in elements}
    roots = [node for node in [*wanted, *by_node] if node in by_node]
    return _operands_first(roots, by_node, _blocked(elements))


def _operands_first(
    roots: Sequence[Node], among: Mapping[Node, Element], blocked: Mapping[Node, bool]
) -> list[Element]:
    """The roots in their order, each after what it reads ``among`` these elements."""
    done: dict[Node, None] = {}
    # With a stack of its own: graphs are deeper than Python recurses.
    todo = [(node, False) for node in roots[::-1]]
    while todo:
        node, ready = todo.pop()
        if node in done:
            continue
        if ready:
            done[node] = None
            continue
        todo.append((node, True))
        operands = [r.source for r in among[node].reads if r.source in among]
        operands.sort(key=lambda n: not blocked[n])
        todo.extend((n, False) for n in operands[::-1])
    return [among[n] for n in done]


def _blocked(elements: Sequence[Element]) -> dict[Node, bool]:
    """Whether each follows something outside of regions, or is outside itself."""
    found: dict[Node, bool] = {}
    for element in elements:
        before = any(found.get(r.source, False) for r in element.reads)
        found[element.node] = before or element.facts.kind == LEFT
    return found


def _is_product(element: Element) -> bool:
    return element.facts.kind in (PRODUCT, ATTENTION)
