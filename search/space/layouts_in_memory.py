"""The order of axes in which a value is stored between kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import ELEMENTWISE, operator


def axes_as_read(program: Program, dims: Sequence[str]) -> tuple[str, ...]:
    """The dimensions in the order in which an input has them: a value computed from it row by row
    is then stored in the order of the reads, not transposed. Of several inputs the one with the
    fewest other dimensions counts; if no input has them all, the order does not change.
    """
    orders = [n.access.dims() for n in program.nodes if n.op == "load"]
    able = [order for order in orders if all(d in order for d in dims)]
    nearest = min(able, key=len, default=tuple(dims))
    return tuple(d for d in nearest if d in dims)


def axes_as_computed(program: Program) -> tuple[tuple[str, ...], ...]:
    """The dimensions of each node in the order in which PyTorch would store it: those of a load as
    its tensor has them, those of a matmul as the operand that is computed, or as the first, whose
    reduced dimension the others of the second one replace. So what a linear layer makes of a norm
    has its features last, however it is read later. A node that this says nothing of keeps its
    order.
    """
    found: list[tuple[str, ...]] = []
    for node in program.nodes:
        order = _order(program, node, found)
        found.append(order if sorted(order) == sorted(node.dims) else node.dims)
    return tuple(found)


def _replaced(dims: Sequence[str], reduced: Sequence[str], weight: Node) -> str:
    """The dimension in whose place the other operand's come in a matmul: the first that is reduced,
    or the last that is one axis of the weights with it, as all heads are behind attention.
    """
    first = next((d for d in dims if d in reduced), "")
    axes = [e.dims() for e in weight.access.index] if weight.op == "load" else []
    together = next((axis for axis in axes if first in axis), (first,))
    return next((d for d in reversed(dims) if d in together and d in reduced), first)


def _order(program: Program, node: Node, found: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if node.op == "load":
        return node.access.dims()
    if node.op == "read":
        at: Mapping[str, tuple[str, ...]] = {
            dim: tuple(expr.dims())
            for dim, expr in zip(program.nodes[node.args[0]].dims, node.access.index, strict=True)
        }
        return tuple(dict.fromkeys(d for dim in found[node.args[0]] for d in at[dim]))
    args = [found[a] for a in node.args]
    if node.op == "matmul":
        weights_first = [program.nodes[a].op == "load" for a in node.args] == [True, False]
        first, second = args[::-1] if weights_first else args
        kept = tuple(d for d in second if d not in first and d not in node.reduced)
        weight = program.nodes[node.args[0 if weights_first else 1]]
        place = _replaced(first, node.reduced, weight)
        left = [d for d in first if d == place or d not in node.reduced]
        return tuple(d for old in left for d in (kept if old == place else (old,)))
    if operator(node.op).kind == ELEMENTWISE:
        return tuple(dict.fromkeys(d for dims in sorted(args, key=len, reverse=True) for d in dims))
    return tuple(d for dims in args[:1] for d in dims if d in node.dims)
