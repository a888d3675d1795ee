"""Positions that outputs in place are written at: integers that a kernel loads once."""

from __future__ import annotations

from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.ugraph import BlockGraph


def single_places(block: BlockGraph) -> tuple[IndexExpr, ...]:
    """The elements of tensors that addresses of stores depend on, where each is one for all; a
    tensor's first such element alone.
    """
    found: dict[str, IndexExpr] = {}
    for _, store in block.stores():
        for element in (e for expr in store.access.index for e in expr.elements()):
            if not element.dims() and len(element.tensors()) == 1:
                found.setdefault(element.name, element)
    return tuple(found.values())
