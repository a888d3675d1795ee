"""Estimated cost of evaluating a program or a block graph.

The unit is one element operation; a multiplication in a contraction counts as a fraction of one,
because it runs as a matmul. The cost of its operands is added where it matters: with few rows it is
all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph

# A trial at this limit takes about ten seconds.
MAX_TRIAL_WORK = 3e8


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a contraction, in elementwise operations: a multiply-add, and an element of an operand."""

    product: float
    operand: float


# Measured. For floats: with the running error analysis, which takes several matmuls and squares.
FIELD_PRICES = Prices(product=1 / 16, operand=0.0)
FLOAT_PRICES = Prices(product=1 / 60, operand=1 / 4)


def program_work(
    program: Program,
    points: Mapping[str, int] | None = None,
    *,
    prices: Prices = FIELD_PRICES,
) -> float:
    """Work of all nodes, with the outputs restricted to so many points of some dimensions."""
    return sum(
        node_work(program.nodes, node, extents, prices)
        for node, extents in _evaluations(program, points or {})
    )


def peak_elements(program: Program, points: Mapping[str, int] | None = None) -> int:
    """Elements of the largest value on the way to the outputs, restricted likewise."""
    return max(
        prod(extents[d] for d in node.dims) for node, extents in _evaluations(program, points or {})
    )


def _evaluations(
    program: Program, points: Mapping[str, int]
) -> Iterator[tuple[Node, Mapping[str, int]]]:
    """Every node with the extents at which it is evaluated.

    A reduction needs all of its own dimension again, so a node may be evaluated in several ways.
    """
    tasks: list[dict[tuple[str, ...], None]] = [{} for _ in program.nodes]
    for o in program.outputs:
        tasks[o.node][_restricted(program, o.node, tuple(points))] = None
    for position in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[position]
        for task in tasks[position]:
            yield node, {**program.sizes, **{d: points[d] for d in task}} if task else program.sizes
            for a in node.args:
                along = task
                if node.op == "read":
                    along = tuple(d for d in node.in_place(program.nodes[a].dims) if d in task)
                tasks[a][_restricted(program, a, along)] = None


def _restricted(program: Program, node: int, dims: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(d for d in program.nodes[node].dims if d in dims)


def block_work(block: BlockGraph, sizes: Mapping[str, int]) -> float:
    """Work of one block, or of all blocks of one cluster, all iterations of its loops."""
    extents = dict(sizes)
    for axis in block.split_axes:
        extents[axis.dim] = min(axis.tile or 1, sizes[axis.dim])
    return sum(node_work(block.nodes, node, extents) for node in block.nodes)


def node_work(
    nodes: Sequence[Node],
    node: Node,
    extents: Mapping[str, int],
    prices: Prices = FIELD_PRICES,
) -> float:
    """Work of one node at these extents."""
    operands = [prod(extents[d] for d in nodes[a].dims) for a in node.args]
    if node.op == "matmul":
        dims = dict.fromkeys(d for a in node.args for d in nodes[a].dims)
        return prod(extents[d] for d in dims) * prices.product + sum(operands) * prices.operand
    return float(max(prod(extents[d] for d in node.dims), *operands, 0))
