"""The order of tile axes in a kernel: the one in which matmuls need no transposes.

A matmul of rows x inner with inner x columns needs rows before inner before columns in every tile.
All matmuls of a block graph together give a partial order on dimensions; the program's order breaks
ties. Reversing the result swaps the operands of every matmul.
"""

from __future__ import annotations

from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph


def axis_order(program: Program, block: BlockGraph, is_reversed: bool = False) -> tuple[str, ...]:
    """Every dimension once."""
    before: dict[str, set[str]] = {d: set() for d in program.dim_names}
    for node in block.nodes:
        if node.op != "matmul":
            continue
        operands = [block.nodes[a].dims for a in node.args]
        sides = [[d for d in dims if d in node.dims] for dims in operands]
        own = [[d for d in s if d not in sides[1 - k]] for k, s in enumerate(sides)]
        # Rows are the side that the program names first, as its outputs are laid out.
        rows, columns = sorted(own, key=lambda s: [program.dim_names.index(d) for d in s])
        for d in node.reduced:
            before[d].update(rows)
        for d in columns:
            before[d].update((*rows, *node.reduced))
    order = _sorted(program.dim_names, before)
    return tuple(reversed(order)) if is_reversed else order


def _sorted(names: tuple[str, ...], before: dict[str, set[str]]) -> tuple[str, ...]:
    """A topological order, by name order among the free; on a circle the rest stays as it was."""
    order: list[str] = []
    while len(order) < len(names):
        rest = [d for d in names if d not in order]
        free = [d for d in rest if before[d] <= set(order)]
        order.append(free[0] if free else rest[0])
    return tuple(order)
