"""Strongly connected components of a graph given by its successors (Tarjan, without recursion)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def components(successors: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """Each component once; a node's component comes after those that it leads to."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: dict[int, None] = {}
    found: list[list[int]] = []
    for root in successors:
        if root in number:
            continue
        todo = [(root, iter(successors[root]))]
        number[root] = low[root] = len(number)
        open_[root] = None
        while todo:
            node, rest = todo[-1]
            child = next(rest, None)
            if child is None:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[node])
                if low[node] == number[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(open_.popitem()[0])
                    found.append(component)
            elif child not in number:
                number[child] = low[child] = len(number)
                open_[child] = None
                todo.append((child, iter(successors[child])))
            elif child in open_:
                low[node] = min(low[node], number[child])
    return found
