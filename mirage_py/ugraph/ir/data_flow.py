"""Data flow of a list of nodes: the users of a node, and the nodes that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isinf

from mirage_py.ugraph.ir.node import Node


def reads_of(nodes: Sequence[Node]) -> list[tuple[int, ...]]:
    """For each node the positions of the nodes that use it, ascending."""
    users: list[list[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        for operand in dict.fromkeys(node.args):
            users[operand].append(position)
    return [tuple(u) for u in users]


def cone(nodes: Sequence[Node], wanted: Iterable[int]) -> tuple[int, ...]:
    """The wanted nodes and all that they need, ascending."""
    seen: dict[int, None] = {}
    todo = list(wanted)
    while todo:
        position = todo.pop()
        if position not in seen:
            seen[position] = None
            todo += nodes[position].args
    return tuple(sorted(seen))


def infinities(nodes: Sequence[Node]) -> dict[int, frozenset[float]]:
    """The infinite constants, and the selections among them and other values: which infinities each
    may be.
    """
    found: dict[int, frozenset[float]] = {}
    for number, node in enumerate(nodes):
        if isinstance(node.attr, float) and isinf(node.attr):
            found[number] = frozenset([node.attr])
        elif node.op == "where" and (known := [found[a] for a in node.args if a in found]):
            found[number] = frozenset().union(*known)
    return found
