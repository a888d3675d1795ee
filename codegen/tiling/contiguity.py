"""Contiguity: how many neighbours along a dimension are contiguous and aligned in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import gcd

from mirage_py.ugraph.ir.index import IndexExpr, joined
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Tensor

# Tensors begin at multiples of this.
ALIGNMENT_BYTES = 16


def strided(
    index: Sequence[IndexExpr], tensor: Tensor, apart: Collection[int] = ()
) -> list[tuple[int, IndexExpr, int]]:
    """What an access moves along: number of an axis, position, stride in elements. Axes of one
    element and of stride 0 are left out; p // 56 and p % 56 along axes that are one run of memory
    are p, unless one of them is ``apart``.
    """
    found: list[tuple[int, IndexExpr, int]] = []
    rows = zip(index, tensor.element_strides, tensor.shape, strict=True)
    for axis, (expr, stride, extent) in enumerate(rows):
        if stride == 0 or extent == 1:
            continue
        while found and not {axis, found[-1][0]} & set(apart):
            _, outer, step = found[-1]
            whole = joined(outer, expr) if step == expr.value * stride else None
            if whole is None:
                break
            found.pop()
            expr = whole
        found.append((axis, expr, stride))
    return found


def mean_step(access: Access, tensor: Tensor, dim: str, extent: int) -> float:
    """Elements in memory from one position along a dimension of this extent to the next: on average
    between its quarters, as windows may wrap at its ends. 0 where positions are data.
    """
    if any(e.tensors() for e in access.index):
        return 0.0
    start, end = extent // 4, max(extent // 4 + 1, 3 * extent // 4)
    origin = dict.fromkeys((*access.dims(), dim), 0)

    def offset(at: int) -> int:
        places = zip(access.index, tensor.element_strides, strict=True)
        return sum(e.evaluate({**origin, dim: at}) * stride for e, stride in places)

    return abs(offset(end) - offset(start)) / (end - start)


def run_length(access: Access, tensor: Tensor, dim: str, limit: int) -> int:
    """The largest power of two up to ``limit`` such that as many positions along ``dim``, the first
    a multiple of it, lie side by side and begin at a multiple of their size.
    """
    run = 1
    while 2 * run <= limit and _is_run(access, tensor, dim, 2 * run):
        run *= 2
    return run


def _is_run(access: Access, tensor: Tensor, dim: str, run: int) -> bool:
    if run * tensor.dtype.bytes > ALIGNMENT_BYTES:
        return False
    moves = 0
    for _, expr, stride in strided(access.index, tensor):
        step, multiple = steps_along(expr, dim, run)
        if step is None or (multiple * stride) % run:
            return False
        moves += step * stride
    return moves == 1


def slope(expr: IndexExpr, dim: str) -> int | None:
    """By how much an expression grows from any position along ``dim`` to the next; None if not
    evenly.
    """
    if dim not in expr.dims():
        return 0
    if expr.op == "dim":
        return 1
    if expr.op not in ("add", "mul"):
        return None
    parts = [slope(part, dim) for part in expr.args]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return known[0] * expr.value if expr.op == "mul" else sum(known)


def steps_along(expr: IndexExpr, dim: str, run: int) -> tuple[int | None, int]:
    """By how much an expression grows from one of ``run`` positions to the next, None if not
    evenly; and what it is a multiple of at the first.
    """
    if expr.op == "dim":
        return (1, run) if expr.name == dim else (0, 1)
    if expr.op == "const":
        return 0, abs(expr.value)
    if expr.op == "data":
        return (None if dim in expr.dims() else 0), 1
    step, multiple = steps_along(expr.args[0], dim, run)
    if step is None:
        return None, 1
    if expr.op == "add":
        other, theirs = steps_along(expr.args[1], dim, run)
        return (None, 1) if other is None else (step + other, gcd(multiple, theirs))
    if expr.op == "mul":
        return step * expr.value, abs(multiple * expr.value)
    if step == 0:
        if expr.op == "mod":
            return 0, gcd(multiple, expr.value)
        return 0, multiple // expr.value if multiple % expr.value == 0 else 1
    if step != 1 or multiple % run or expr.value % run:
        return None, 1
    if expr.op == "mod":
        return 1, gcd(multiple, expr.value)
    return 0, multiple // expr.value if multiple % expr.value == 0 else 1


def merged_step(expr: IndexExpr, extents: Sequence[tuple[str, int]]) -> int | None:
    """The step from each point of a tile to the next along several dimensions, the first of them
    the fastest, that together go evenly: channels and then groups of ``group * 32 + channel``. None
    if they do not.
    """
    found = None
    expected: int | None = None
    for dim, extent in extents:
        step, _ = steps_along(expr, dim, extent)
        if not step or (expected is not None and step != expected):
            return None
        found = step if found is None else found
        expected = step * extent
    return found
