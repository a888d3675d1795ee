"""Small sizes of multilinear operators, at which mutants are told apart by trying them all."""

from __future__ import annotations

from math import lcm

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder, graph_of
from mirage_py.networks.ir.graph import Graph, Node
from mirage_py.networks.operators import TensorType

# Rows of an image: enough for windows that touch no border beside those that do.
_ROWS = 8
_FOUR = 4


def small_graph(graph: Graph) -> Graph:
    """A graph of operators that read inputs only, on small operands; with fewer groups, and all
    other attributes as they are.

    Extents keep their remainders by the factors that moves may take out of them. InputError where
    two operators want other sizes of one input.
    """
    builder = GraphBuilder()
    alone = [_small_operator(node, [graph.type_of(v) for v in node.inputs]) for node in graph.nodes]
    wanted: dict[int, TensorType] = {}
    for node, small in zip(graph.nodes, alone, strict=True):
        for value, entry in zip(node.inputs, small.inputs, strict=True):
            if wanted.setdefault(value.index, entry.type) != entry.type or not value.is_input:
                raise InputError("operators that share an input want other small sizes of it")
    for n, entry in enumerate(graph.inputs):
        known = wanted.get(n, entry.type)
        builder.input(entry.name, known.shape, known.dtype)
    results = [
        builder.apply(node.operator, *node.inputs, **small.nodes[0].values)
        for node, small in zip(graph.nodes, alone, strict=True)
    ]
    return builder.build(*(results[v.node] for v in graph.outputs))


def _small_operator(node: Node, types: list[TensorType]) -> Graph:
    if node.operator in ("matmul", "bmm"):
        return _small_product(node, types)
    return _small_convolution(node, types)


def _few(extent: int, few: int) -> int:
    """At most ``few``, even where the extent is."""
    if extent <= few:
        return extent
    return few if (few - extent) % 2 == 0 else few + 1


def _small_product(node: Node, types: list[TensorType]) -> Graph:
    a, b = (list(t.shape) for t in types)
    rows, shared, columns = _few(a[-2], 4), _few(a[-1], 6), _few(b[-1], 2)
    stacks = [[_few(n, 4) for n in shape[:-2]] for shape in (a, b)]
    shapes = [*stacks[0], rows, shared], [*stacks[1], shared, columns]
    kinds = [TensorType(tuple(shape), t.dtype) for shape, t in zip(shapes, types, strict=True)]
    return graph_of(node.operator, kinds, {})


def _small_convolution(node: Node, types: list[TensorType]) -> Graph:
    x, w = types
    settings = dict(node.values)
    groups = settings["groups"] = min(settings["groups"], _FOUR)
    inner = _few(w.shape[1], 4)
    transposed = "transpose" in node.operator
    outer = _few(w.shape[0] // node["groups"], 2)
    channels = groups * (outer if transposed else inner)
    rows = [_small_rows(node, n, extent, w.shape[2 + n]) for n, extent in enumerate(x.shape[2:])]
    image = (_few(x.shape[0], 4), channels, *rows)
    weight = (groups * outer, inner, *w.shape[2:])
    return graph_of(node.operator, [x.of_shape(image), w.of_shape(weight)], settings)


def _small_rows(node: Node, axis: int, extent: int, kernel: int) -> int:
    stride, dilation = int(node["stride"][axis]), int(node["dilation"][axis])
    period = lcm(_FOUR, stride, dilation)
    least = max(_ROWS, 2 * dilation * (kernel - 1) + 2 * stride)
    return min(extent, least + (extent - least) % period)
