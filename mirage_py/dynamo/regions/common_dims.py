"""Dimensions of a region's program that may be one.

The front end gives every operator dimensions of its own: a norm sums over ``d`` and the product
behind it over ``d_1``, and three products of one row have three dimensions of columns. Where no
value depends on two of them, they are names of one loop, and a kernel can go through it once:

* sums over the same data become one loop, in which a norm is summed beside its product;
* columns of products side by side become one grid. Where one is as wide as several others, a
  dimension of its own counts its share: 4096, 1024 and 1024 columns are ``m * 4 + m_1``, ``m`` and
  ``m``. That is for one row, which plain cores multiply: tensor cores want their tiles in one
  dimension, so products of several rows share columns of equal number only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import gcd, prod

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.dims import fresh_dim, meet, own_columns, reduced_dims, with_dims

# Fewer columns in common than this would leave the GPU too few blocks, and more shares than that
# too many results in each.
_FEWEST, _MOST_SHARES = 256, 16


def with_common_dims(program: Program) -> Program:
    """The same program with fewer dimensions; inputs and outputs stay as they are."""
    return _with_common_columns(_with_common_sums(program))


def common_columns(widths: Sequence[int], *, one_row: bool) -> int:
    """Of products side by side the columns that one grid goes over; 0 where they have none."""
    common = gcd(*widths)
    if not one_row:
        return common if common == max(widths) else 0
    return common if common >= _FEWEST and max(widths) <= _MOST_SHARES * common else 0


def _with_common_sums(program: Program) -> Program:
    exprs: dict[str, IndexExpr] = {}
    for kept, gone in combinations(reduced_dims(program), 2):
        free = kept not in exprs and gone not in exprs
        same = free and program.sizes[kept] == program.sizes[gone]
        if same and _read_alike(program, kept, gone) and not meet(program, kept, gone):
            exprs[gone] = ix.dim(kept)
            program = with_dims(program, {gone: ix.dim(kept)}, {})
    return program


def _with_common_columns(program: Program) -> Program:
    groups = own_columns(program)
    apart = all(
        not meet(program, a, b)
        for one, other in combinations(groups, 2)
        for a in one
        for b in other
    )
    if len(groups) < 2 or not apart:
        return program
    own = [d for group in groups for d in group]
    one_row = not any(n.op == "matmul" and d in n.dims for n in program.nodes for d in own)
    widths = [[program.sizes[d] for d in group] for group in groups]
    common = _common_widths(widths)
    if not common or not common_columns([*map(prod, widths), prod(common)], one_row=one_row):
        return program
    bases: list[str] = []
    for place, width in enumerate(common):
        # One that is no wider than what is common keeps its name.
        same = [g[place] for g in groups if len(g) == len(common)]
        kept = [d for d in same if program.sizes[d] == width]
        bases.append(kept[0] if kept else fresh_dim(program, f"m{place or ''}"))
    exprs: dict[str, IndexExpr] = {}
    sizes = dict(zip(bases, common, strict=True))
    for group, extents in zip(groups, widths, strict=True):
        if len(group) < len(common):  # its columns in a row
            (d,), (first, last) = group, common
            share = extents[0] // (first * last)
            exprs[d] = ix.dim(bases[0]) * (share * last) + ix.dim(bases[1])
            if share > 1:
                exprs[d], sizes[d] = exprs[d] + ix.dim(d) * last, share
            continue
        for d, extent, base, width in zip(group, extents, bases, common, strict=True):
            share = extent // width
            exprs[d] = ix.dim(base) * share + ix.dim(d) if share > 1 else ix.dim(base)
            if share > 1:
                sizes[d] = share
    return with_dims(program, exprs, sizes)


def _common_widths(widths: Sequence[Sequence[int]]) -> list[int]:
    """Extents of the dimensions that groups of dimensions have in common; none where they differ in
    number, but for columns that are as many in a row.
    """
    rank = max(map(len, widths))
    alike = [w for w in widths if len(w) == rank]
    common = [gcd(*extents) for extents in zip(*alike, strict=True)]
    if rank > 2 or any(len(w) < rank and w[0] % prod(common) for w in widths):
        return []
    return common


def _read_alike(program: Program, a: str, b: str) -> bool:
    """Whether some input is read over both in the same way."""
    loads = [n.access for n in program.nodes if n.op == "load"]
    as_a = {b: ix.dim(a)}
    return any(
        x.tensor == y.tensor and x.index == tuple(e.substitute(as_a) for e in y.index)
        for x, y in combinations([*loads, *loads[::-1]], 2)
        if any(a in e.dims() for e in x.index) and any(b in e.dims() for e in y.index)
    )
