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
from math import gcd

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
    columns = own_columns(program)
    if len(columns) < 2 or any(meet(program, a, b) for a, b in combinations(columns, 2)):
        return program
    one_row = not any(n.op == "matmul" and d in n.dims for n in program.nodes for d in columns)
    common = common_columns([program.sizes[d] for d in columns], one_row=one_row)
    if not common:
        return program
    # One that is no wider than what is common keeps its name.
    base = next((d for d in columns if program.sizes[d] == common), fresh_dim(program, "m"))
    exprs: dict[str, IndexExpr] = {}
    shares: dict[str, int] = {base: common}
    for d in columns:
        share = program.sizes[d] // common
        exprs[d] = ix.dim(base) * share + ix.dim(d) if share > 1 else ix.dim(base)
        if share > 1:
            shares[d] = share
    return with_dims(program, exprs, shares)


def _read_alike(program: Program, a: str, b: str) -> bool:
    """Whether some input is read over both in the same way."""
    loads = [n.access for n in program.nodes if n.op == "load"]
    as_a = {b: ix.dim(a)}
    return any(
        x.tensor == y.tensor and x.index == tuple(e.substitute(as_a) for e in y.index)
        for x, y in combinations([*loads, *loads[::-1]], 2)
        if any(a in e.dims() for e in x.index) and any(b in e.dims() for e in y.index)
    )
