"""Integer inputs that are positions, such as token labels, ends of sequences, and rows of a table.

What is compared with an index means something only in the index's range. Drawn from elsewhere, no
label would ever be met, and a kernel that ignores them would pass. What is looked up at is drawn
from the first position to the last, and a few beyond both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


# How far beyond the ends of a table positions are drawn: they are taken modulo its extent.
_BEYOND = 2
_MOST_CONSTANTS = 16


@dataclass(frozen=True, slots=True)
class Positions:
    """From where to where positions are drawn, and the constants of the program, which one in four
    is: a label that is to be ignored is no position.
    """

    low: int
    high: int
    constants: tuple[int, ...]

    def of(self, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions made of random numbers."""
        found = self.low + drawn // 4 % (self.high - self.low + 1)
        if not self.constants:
            return found
        chosen = np.array(self.constants)[drawn // 4 % len(self.constants)]
        return np.asarray(np.where(drawn % 4 == 0, chosen, found))


def looked_up(program: Program) -> dict[str, Positions]:
    """For each integer input whose elements are positions how to draw them."""
    ranges: dict[str, tuple[int, int]] = {}
    for node in program.nodes:
        if node.op == "load":
            for expr in node.access.index:
                for name, extent in _extents(expr):
                    low, high = ranges.get(name, (0, 0))
                    ranges[name] = (min(low, -_BEYOND), max(high, extent - 1 + _BEYOND))
    constants = [n.attr for n in program.nodes if n.op == "const" and isinstance(n.attr, float)]
    whole = dict.fromkeys(int(c) for c in constants if abs(c) < 1 << 31 and c.is_integer())
    few = tuple(whole)[:_MOST_CONSTANTS]
    return {name: Positions(low, high, few) for name, (low, high) in ranges.items()}


def _extents(expr: IndexExpr, extent: int = 1) -> Iterator[tuple[str, int]]:
    """The tensors of positions in an expression, and what these are taken modulo."""
    if expr.op == "data":
        yield expr.name, extent
    inner = {"mod": expr.value, "floordiv": extent * expr.value}.get(expr.op, extent)
    for part in expr.args:
        yield from _extents(part, inner)


def label_ranges(program: Program) -> dict[str, tuple[int, int]]:
    """For each integer input that is compared with an index, or is one, the least and greatest
    index. PyTorch may be asked for the same: of what is looked up at none is out of range.
    """
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
    inside: dict[str, tuple[int, int]] = {}
    for node in program.nodes:
        for expr in node.access.index if node.op == "load" else ():
            for name, (low, high) in _inside(expr, program.sizes):
                known = inside.get(name, (low, high))
                inside[name] = (max(low, known[0]), min(high, known[1]))
    return ranges | {name: (low, max(low, high)) for name, (low, high) in inside.items()}


def _inside(expr: IndexExpr, sizes: Mapping[str, int]) -> Iterator[tuple[str, tuple[int, int]]]:
    """From where to where the elements of tensors lead to positions of the table."""
    if expr.op == "mod" and expr.args[0].op == "floordiv" and expr.args[0].args[0].op == "data":
        quotient = expr.args[0]
        yield quotient.args[0].name, (0, quotient.value * expr.value - 1)
    elif expr.op == "mod" and expr.tensors():
        terms = [*_terms(expr.args[0])]
        others = [(f * e.bounds(sizes)[0], f * e.bounds(sizes)[1]) for f, e in terms
                  if e.op != "data"]  # fmt: skip
        low, high = (sum(map(end, others)) for end in (min, max))
        elements = [(f, e.name) for f, e in terms if e.op == "data"]
        for factor, name in elements:
            if len(elements) == 1:
                ends = (-low / factor, (expr.value - 1 - high) / factor)
                yield name, (ceil(min(ends)), floor(max(ends)))
            else:  # each has its share
                factors = sum(abs(f) for f, _ in elements)
                yield name, (0, max(0, expr.value - 1 - high) // factors)
    for part in expr.args:
        yield from _inside(part, sizes)


def _terms(expr: IndexExpr, factor: int = 1) -> Iterator[tuple[int, IndexExpr]]:
    if expr.op == "add":
        for part in expr.args:
            yield from _terms(part, factor)
    elif expr.op == "mul":
        yield from _terms(expr.args[0], factor * expr.value)
    else:
        yield factor, expr


def _uncast(program: Program, position: int) -> Node:
    node = program.nodes[position]
    return _uncast(program, node.args[0]) if node.op == "cast" else node
