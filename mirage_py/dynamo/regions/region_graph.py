"""A region as a graph, and the key by which two regions are the same."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from mirage_py.dynamo.regions.nodes import (
    CONSTANT,
    POSITION,
    VIEW,
    WRITE,
    Facts,
    cuts_at_size,
    is_write,
    shape_of,
    tensors_of,
    written_down,
    written_value,
)
from mirage_py.dynamo.regions.regions import Region
from mirage_py.dynamo.regions.symbolic_sizes import is_row_major, is_same, size_texts


@dataclass(frozen=True, slots=True)
class RegionGraph:
    """``module`` computes the region; it takes ``inputs`` of the graph around it, in the order in
    which they are read first, and returns a tuple with ``outputs``. Inputs are tensors and sizes.
    ``origins`` says of its nodes which ones of the graph around it they were copied from.
    Nothing in the graph around it writes the inputs with the numbers ``constants``, and they were
    written before any kernel starts that may lie in front of the region. Of ``written`` each
    is the number of a result and that of the input which it is written to, in place.
    """

    module: GraphModule
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    key: str
    constants: tuple[int, ...] = ()
    origins: Mapping[Node, Node] = field(default_factory=dict)
    written: tuple[tuple[int, int], ...] = ()


def region_graph(region: Region, facts: Mapping[Node, Facts]) -> RegionGraph:
    """Cut the region out; views and constants that it needs come along."""
    graph = Graph()
    inputs: dict[Node, Node] = {}
    made: dict[Node, Node] = {}
    inside = dict.fromkeys(region.nodes)
    reshaped = _reshaped(region, facts, inside)

    def value(node: Node) -> Node:
        node = reshaped.get(node, node)
        if node in made:
            return made[node]
        if (held := written_down(node)) is not None:
            made[node] = _numbers(graph, node, held)
            return made[node]
        if node in inside or (node not in reshaped and _comes_along(node, facts, inside)):
            # Operands first: an input is declared where it is read first.
            for operand in node.all_input_nodes:
                value(operand)
            made[node] = graph.node_copy(node, lambda n: made[reshaped.get(n, n)])
            return made[node]
        made[node] = inputs[node] = _placeholder(graph, node, len(inputs))
        return made[node]

    for node in region.nodes:
        value(node)
    graph.output(tuple(value(n) for n in region.outputs))
    graph.eliminate_dead_code()
    graph.lint()
    module = GraphModule(torch.nn.Module(), graph, "Region")
    origins = {copy: node for node, copy in made.items()}
    numbers = {node: number for number, node in enumerate(inputs)}
    written = tuple(
        (number, numbers[n.all_input_nodes[0]])
        for number, n in enumerate(region.outputs)
        if facts[n].kind == WRITE
    )
    return RegionGraph(
        module,
        tuple(inputs),
        region.outputs,
        content_key(module),
        origins=origins,
        written=written,
    )


def with_values(module: GraphModule) -> GraphModule:
    """A region that returns what it would write in place."""
    graph = Graph()
    results: Any = graph.graph_copy(module.graph, {})
    graph.output(tuple(written_value(n) if is_write(n) else n for n in results))
    graph.eliminate_dead_code()
    return GraphModule(module, graph, "Region")


def _comes_along(node: Node, facts: Mapping[Node, Facts], inside: Mapping[Node, None]) -> bool:
    """Whether a node that the region reads is made in it: a constant, or a view of a tensor."""
    if facts[node].kind != VIEW:
        return facts[node].kind in (CONSTANT, POSITION)
    if cuts_at_size(node):
        return False
    whole = node.all_input_nodes[0]
    # One of several results of an operator outside is an input as it is.
    part = node.target is operator.getitem and facts[whole].kind != VIEW
    return not part or whole in inside


def _reshaped(
    region: Region, facts: Mapping[Node, Facts], inside: Mapping[Node, None]
) -> dict[Node, Node]:
    """Views that are inputs themselves: what they stand for has its elements in the order in which
    the tensor outside has them, and the region reads that tensor in no other shape. Its own axes
    are none of the region's business, and a sum over two of them would be two loops.

    Views of one tensor stand for the first of them.
    """
    read: dict[Node, list[Node]] = {}
    for node in region.nodes:
        for operand in node.all_input_nodes:
            whole = _whole(operand, facts)
            is_made = facts[whole].kind in (CONSTANT, POSITION)
            if not _is_inside(whole, inside) and not is_made and tensors_of(operand):
                read.setdefault(whole, []).append(operand)
    found: dict[Node, Node] = {}
    for whole, views in read.items():
        if all(_same_elements(whole, v) and _shape(v) == _shape(views[0]) for v in views):
            alike = views
        else:
            # Of symbolic sizes an axis of two in a row is no dimension: their last view that has
            # the elements in order, as of heads before they are transposed.
            is_open = not all(isinstance(n, int) for n in tensors_of(whole)[0].shape)
            alike = [_last_alike(whole, v, facts) for v in views] if is_open else [whole]
        if alike[0] is not whole and all(_shape(v) == _shape(alike[0]) for v in alike):
            found.update(dict.fromkeys(alike, alike[0]))
    return found


def _is_inside(node: Node, inside: Mapping[Node, None]) -> bool:
    """Whether the region computes it, as one of several results of an operator, too."""
    is_part = node.target is operator.getitem
    return node in inside or (is_part and node.all_input_nodes[0] in inside)


def _last_alike(whole: Node, view: Node, facts: Mapping[Node, Facts]) -> Node:
    """Of the views from a tensor to ``view`` the last one that is row-major and of its elements."""
    while view is not whole and not (_same_elements(whole, view) and not cuts_at_size(view)):
        if facts[view].kind != VIEW:
            return whole
        view = view.all_input_nodes[0]
    return view


def _whole(node: Node, facts: Mapping[Node, Facts]) -> Node:
    """The tensor that a chain of views begins at."""
    while facts[node].kind == VIEW and node.target is not operator.getitem:
        node = node.all_input_nodes[0]
    return node


def _same_elements(whole: Node, view: Node) -> bool:
    """Whether both are row-major and of the same elements, whatever the sizes turn out to be."""
    tensors = [*tensors_of(whole), *tensors_of(view)]
    if len(tensors) != 2:
        return False
    one, other = tensors
    where = one.dtype == other.dtype and is_same(one.storage_offset(), other.storage_offset())
    alike = where and is_same(prod(one.shape), prod(other.shape))
    return alike and all(map(is_row_major, tensors))


def _shape(node: Node) -> tuple[int, ...]:
    return shape_of(tensors_of(node)[0])


def content_key(module: GraphModule) -> str:
    """A digest of what the region computes: operators, wiring, types, shapes and strides.

    Names and places do not count, so identical layers have one key. Symbolic sizes count by the
    names that the region has for them.
    """
    number: dict[Node, int] = {}
    values = [n.meta.get("val") for n in module.graph.find_nodes(op="placeholder")]
    sizes = iter(size_texts(values))
    lines: list[str] = []
    for node in module.graph.nodes:
        number[node] = len(number)
        arguments = _numbered((node.args, node.kwargs), number)
        lines.append(f"{node.op} {_operator(node)} {arguments!r}")
        if node.op == "placeholder":
            lines.append(_described(node.meta.get("val"), next(sizes)))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


class _Reference:
    """A node in the text of another one."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"%{self._number}"


def _numbered(arguments: Any, number: Mapping[Node, int]) -> Any:
    rename: Any = lambda a: _Reference(number[a]) if isinstance(a, Node) else a  # noqa: E731
    return torch.fx.node.map_aggregate(arguments, rename)


def _placeholder(graph: Graph, node: Node, number: int) -> Node:
    # With its place before it, as operands are copied one after the other.
    last = next((n for n in reversed(graph.nodes) if n.op == "placeholder"), None)
    with graph.inserting_after(last) if last is not None else graph.inserting_before():
        new = graph.placeholder(f"in{number}")
    new.meta = dict(node.meta)
    return new


def _numbers(graph: Graph, node: Node, held: torch.Tensor) -> Node:
    """A tensor of a few numbers, made of them: a region has no tensors of its own."""
    aten = torch.ops.aten
    kind: dict[str, Any] = {"dtype": held.dtype, "device": held.device}
    with _disable_current_modes():
        numbers = held.flatten().tolist()
    ones = [graph.call_function(aten.full.default, ([1], n), kind) for n in numbers]
    whole = graph.call_function(aten.cat.default, (ones,))
    shaped = graph.call_function(aten.view.default, (whole, list(held.shape)))
    shaped.meta.update(next(iter(node.users)).meta)
    return shaped


def _operator(node: Node) -> str:
    return "" if node.op in ("placeholder", "output") else str(node.target)


def _described(value: Any, sizes: str) -> str:
    return f"{value.dtype} {sizes} {value.device}" if isinstance(value, torch.Tensor) else sizes
