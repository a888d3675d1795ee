"""Digits of dimensions that indices divide: p // 14 and p % 14 of 196 values of p, at other sizes.

Patches and rows of images count two axes as one dimension. Where all that divides it are its digits
it may be smaller as any other: each digit gets fewer values, and each index the same digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from math import prod

from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Program

# The least digit of the first dimension has so many values at small sizes, each next one more.
_FIRST = 3

# Where the digits of a number end, minor first: 1, 14, 196.
Ends = tuple[int, ...]


def digit_ends(program: Program, nodes: Iterable[Node] = ()) -> dict[str, Ends]:
    """The dimensions that a program divides, and only by their digits; ``nodes`` of kernels of it
    have none but these.
    """
    found: dict[str, set[int]] = {}
    refused: dict[str, None] = {}
    for known, node in [(False, n) for n in program.nodes] + [(True, n) for n in nodes]:
        for expr in _indices(node):
            _collect(expr, program.sizes, found, refused, grows=not known)
        if isinstance(node.attr, IndexExpr | Predicate):
            refused |= dict.fromkeys(node.attr.dims())
    for output in program.outputs:
        for expr in output.index:
            _collect(expr, program.sizes, found, refused, grows=True)
    ends = {d: tuple(sorted(e)) for d, e in found.items() if d not in refused}
    return {d: e for d, e in ends.items() if all(b % a == 0 for a, b in pairwise(e))}


def small_ends(known: Mapping[str, Ends]) -> dict[str, Ends]:
    """Fewer values for each digit, and for most of them other numbers."""
    found: dict[str, Ends] = {}
    first = _FIRST
    for d, ends in known.items():
        digits = [b // a for a, b in pairwise(ends)]
        few = [min(digit, first + n) for n, digit in enumerate(digits)]
        found[d] = tuple(prod(few[:n]) for n in range(len(few) + 1))
        first += len(digits)
    return found


def in_digits(expr: IndexExpr, ends: Mapping[str, tuple[Ends, Ends]]) -> IndexExpr:
    """The index where each digit that ends at the first of two numbers ends at the second."""
    digit = _digit(expr)
    if digit is not None and digit[0] in ends:
        old, new = ends[digit[0]]
        moved = dict(zip(old, new, strict=True))
        inner = expr.args[0]
        if inner.op == "floordiv":
            inner = replace(inner, value=moved[inner.value])
        step = digit[1] if expr.op == "mod" else 1
        value = moved[expr.value * step] // moved[step]
        return replace(expr, args=(inner,), value=value)
    return replace(expr, args=tuple(in_digits(a, ends) for a in expr.args)) if expr.args else expr


def _digit(expr: IndexExpr) -> tuple[str, int, int] | None:
    """The dimension of d // a % m, d // a or d % m, a, and the end of the digit, 0 where that is
    the dimension's; None for another index.
    """
    if expr.op not in ("floordiv", "mod"):
        return None
    inner, step = expr.args[0], 1
    if expr.op == "mod" and inner.op == "floordiv":
        inner, step = inner.args[0], inner.value
    if not inner.is_dim:
        return None
    return (inner.name, expr.value, 0) if expr.op == "floordiv" else (
        inner.name, step, step * expr.value,
    )  # fmt: skip


def _collect(
    expr: IndexExpr,
    sizes: Mapping[str, int],
    found: dict[str, set[int]],
    refused: dict[str, None],
    *,
    grows: bool,
) -> None:
    digit = _digit(expr)
    if digit is None:
        if expr.op in ("floordiv", "mod", "data"):
            refused |= dict.fromkeys(expr.dims())
        for part in expr.args:
            _collect(part, sizes, found, refused, grows=grows)
        return
    d, step, end = digit
    ends = {1, step, end or sizes[d], sizes[d]}
    if grows:
        found.setdefault(d, set()).update(ends)
    elif not ends <= found.get(d, set()):
        refused[d] = None


def _indices(node: Node) -> Iterator[IndexExpr]:
    if isinstance(node.attr, Access):
        yield from node.attr.index
