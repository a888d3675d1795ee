"""Minus infinity in kernels: it is selected, or below a maximum. Over a field it is a number like
others, times which 0 is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.ugraph.ir.data_flow import infinities
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

_MAXIMA = ("max", "maximum")


def infinity_fault(ugraph: UGraph) -> str:
    """What a kernel does with minus infinity but to select it and to take a maximum, or nothing."""
    for kernel in ugraph.in_blocks.kernels:
        if isinstance(kernel, BlockGraph):
            fault = _fault(kernel.nodes)
            if fault:
                return f"kernel {kernel.name}: {fault}"
    return ""


def _fault(nodes: Sequence[Node]) -> str:
    known = infinities(nodes)
    for number, node in enumerate(nodes):
        is_reached = number not in known and any(a in known for a in node.args)
        if is_reached and node.op not in (*_MAXIMA, *STORES):
            return f"minus infinity reaches {node.op} of [{', '.join(node.dims)}]"
    return ""
