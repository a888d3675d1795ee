"""Integer inputs that are positions, such as token labels and ends of sequences.

What is compared with an index means something only in the index's range. Drawn from elsewhere, no
label would ever be met, and a kernel that ignores them would pass.
"""

from __future__ import annotations

from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def label_ranges(program: Program) -> dict[str, tuple[int, int]]:
    """For each integer input that is compared with an index, the least and greatest index."""
    integers = [t.name for t in program.inputs if not t.dtype.is_float and t.dtype != BOOL]
    ranges: dict[str, tuple[int, int]] = {}
    for node in program.nodes:
        if node.op not in _COMPARISONS:
            continue
        operands = [_uncast(program, a) for a in node.args]
        for label, index in (operands, operands[::-1]):
            if label.op != "load" or label.access.tensor not in integers:
                continue
            if isinstance(index.attr, IndexExpr):
                low, high = index.attr.bounds(program.sizes)
                known = ranges.get(label.access.tensor, (low, high))
                ranges[label.access.tensor] = (min(low, known[0]), max(high, known[1]))
    return ranges


def _uncast(program: Program, position: int) -> Node:
    node = program.nodes[position]
    return _uncast(program, node.args[0]) if node.op == "cast" else node
