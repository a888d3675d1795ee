"""Logarithms of sums of exponentials, subtracted without loss of precision.

log(sum(exp(x))) is emitted as m + log(s), with the maximum m taken out of the exponentials. That
sum is as large as m and rounded there, so x - (m + log(s)) has few digits where x is near the
maximum and the result near 0. x - m loses nothing there:

    x - (m + log(s))  ->  (x - m) - log(s)
"""

from __future__ import annotations

from collections.abc import Collection

from mirage_py.codegen.lowering.base_two_shifts import is_shift
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block, without_unread

# What the shift of exponentials is made by, where it is not one by name.
_MAXIMA = ("max", "accum_max", "maximum")


def with_shifts_first(block: BlockGraph, stored: Collection[str]) -> BlockGraph:
    """The block graph with such shifts subtracted first; ``stored`` tensors hold shifts."""
    found = {n: f for n in range(len(block.nodes)) if (f := _terms(block, n, stored))}
    if not found:
        return block

    def rule(new: NewNodes, number: int) -> int:
        if number not in found:
            return new.copy(number)
        node = block.nodes[number]
        rest = new.place[node.args[0]]
        for term in found[number]:
            rest = new.add("sub", (rest, new.place[term]), None, node.dims)
        return rest

    return without_unread(rebuild_block(block, rule))


def _terms(block: BlockGraph, number: int, stored: Collection[str]) -> tuple[int, ...]:
    """What a difference of this kind subtracts: shifts, and a logarithm at last."""
    node = block.nodes[number]
    if node.op != "sub":
        return ()
    todo, shifts, logarithms = [node.args[1]], list[int](), list[int]()
    while todo:
        term = block.nodes[todo[-1]]
        if term.op == "add":
            todo[-1:] = term.args
        elif _shifts(term, stored):
            shifts.append(todo.pop())
        elif term.op == "log":
            logarithms.append(todo.pop())
        else:
            return ()
    return (*shifts, *logarithms) if shifts and len(logarithms) == 1 else ()


def _shifts(node: Node, stored: Collection[str]) -> bool:
    is_read = node.op == "load" and node.access.tensor in stored
    return is_read or is_shift(node) or node.op in _MAXIMA
