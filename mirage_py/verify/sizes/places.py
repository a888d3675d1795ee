"""Constant positions that inputs are read at, transferred to other sizes.

A tensor whose element 31,900 is read is as large as that at any size of its dimensions, unless the
position moves with them. One that lies inside of all else that is read along an axis stays inside,
near the end, and different positions stay different and in order. Whoever compares two graphs has
to move the positions of both at once, or one could take the place of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import STORES, Node

# Tensor, axis, position.
Place = tuple[str, int, int]
# The least and greatest value of an index, at the old sizes and at the new ones.
Range = tuple[int, int]


def moved_places(
    nodes: Iterable[Node],
    old: Callable[[IndexExpr], Range],
    new: Callable[[IndexExpr], Range],
) -> Mapping[Place, int]:
    """Where to read or write in place of constant positions, of those that ``nodes`` have."""
    found: dict[tuple[str, int], dict[IndexExpr, None]] = {}
    for node in nodes:
        if node.op == "load" or node.op in STORES:
            for axis, expr in enumerate(node.access.index):
                found.setdefault((node.access.tensor, axis), {})[expr] = None
    places: dict[Place, int] = {}
    for (tensor, axis), exprs in found.items():
        constants = sorted(e.value for e in exprs if e.op == "const")
        others = [e for e in exprs if e.op != "const"]
        if not constants or not others:
            continue
        first = max(old(e)[0] for e in others)
        end, new_end = (min(of(e)[1] for e in others) for of in (old, new))
        moving = [c for c in constants if max(first, new_end + 1) <= c <= end]
        free = [p for p in range(new_end, -1, -1) if p not in constants]
        if len(moving) <= len(free):
            pairs = zip(reversed(moving), free, strict=False)
            places.update({(tensor, axis, c): p for c, p in pairs})
    return places
