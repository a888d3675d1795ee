"""Programs of short rows: whatever they reduce, one block holds whole, and there are many rows.

Routers, top-k of a few experts, small softmaxes. One kernel without loops moves the least that any
can; kernels in sequence only add to that, and are not searched.
"""

from __future__ import annotations

from math import prod

from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Program

# Elements along a dimension that is reduced, and of the largest value of one row.
_LONGEST = 512
_LARGEST = 8192
# Blocks for every SM, and some for their tails.
_ROWS = 1024


def has_short_rows(program: Program) -> bool:
    """Whether it has no matmul and no row that one block could not hold, and many rows."""
    if any(node.op == "matmul" for node in program.nodes):
        return False
    sizes = program.sizes
    reduced = {d for n in program.nodes if n.op in REDUCING for d in n.reduced}
    kept = [set(program.nodes[o.node].dims) - reduced for o in program.outputs]
    rows = set.intersection(*kept) if kept else set()
    largest = max(prod(sizes[d] for d in n.dims if d not in rows) for n in program.nodes)
    return (
        bool(reduced)
        and max(sizes[d] for d in reduced) <= _LONGEST
        and largest <= _LARGEST
        and prod(sizes[d] for d in rows) >= _ROWS
    )
