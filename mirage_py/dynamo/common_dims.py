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

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import gcd

from mirage_py.ugraph import index as ix
from mirage_py.ugraph.builder import ProgramBuilder
from mirage_py.ugraph.index import IndexExpr, Predicate
from mirage_py.ugraph.node import Node
from mirage_py.ugraph.program import Output, Program
from mirage_py.ugraph.rewrite.rebuild import copied

_REDUCTIONS = ("sum", "max", "matmul")
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
    for kept, gone in combinations(_reduced(program), 2):
        free = kept not in exprs and gone not in exprs
        same = free and program.sizes[kept] == program.sizes[gone]
        if same and _read_alike(program, kept, gone) and not _meet(program, kept, gone):
            exprs[gone] = ix.dim(kept)
            program = _renamed(program, {gone: ix.dim(kept)}, {})
    return program


def _with_common_columns(program: Program) -> Program:
    columns = _columns(program)
    if len(columns) < 2 or any(_meet(program, a, b) for a, b in combinations(columns, 2)):
        return program
    one_row = not any(n.op == "matmul" and d in n.dims for n in program.nodes for d in columns)
    common = common_columns([program.sizes[d] for d in columns], one_row=one_row)
    if not common:
        return program
    # One that is no wider than what is common keeps its name.
    base = next((d for d in columns if program.sizes[d] == common), _fresh(program, "m"))
    exprs: dict[str, IndexExpr] = {}
    shares: dict[str, int] = {base: common}
    for d in columns:
        share = program.sizes[d] // common
        exprs[d] = ix.dim(base) * share + ix.dim(d) if share > 1 else ix.dim(base)
        if share > 1:
            shares[d] = share
    return _renamed(program, exprs, shares)


def _reduced(program: Program) -> list[str]:
    nodes = [n for n in program.nodes if n.op in _REDUCTIONS]
    return list(dict.fromkeys(d for n in nodes for d in n.reduced))


def _columns(program: Program) -> list[str]:
    """Of each output that has such a dimension, the one that no other output has: not reduced
    anywhere, and with data of its own to be multiplied with.
    """
    reduced = dict.fromkeys(_reduced(program))
    found = []
    for output in program.outputs:
        others = [program.nodes[o.node].dims for o in program.outputs if o is not output]
        own = [
            d
            for d in program.nodes[output.node].dims
            if d not in reduced and not any(d in dims for dims in others)
        ]
        if len(own) == 1 and _is_multiplied(program, own[0], reduced):
            found += own
    return found


def _is_multiplied(program: Program, dim: str, reduced: Mapping[str, None]) -> bool:
    loads = [n for n in program.nodes if n.op == "load" and dim in n.dims]
    return any(d in reduced for n in loads for d in n.dims)


def _meet(program: Program, a: str, b: str) -> bool:
    """Whether some value depends on both dimensions: as one they would be its diagonal."""
    for node in program.nodes:
        seen = {*node.dims, *(d for x in node.args for d in program.nodes[x].dims)}
        if a in seen and b in seen:
            return True
    return False


def _read_alike(program: Program, a: str, b: str) -> bool:
    """Whether some input is read over both in the same way."""
    loads = [n.access for n in program.nodes if n.op == "load"]
    as_a = {b: ix.dim(a)}
    return any(
        x.tensor == y.tensor and x.index == tuple(e.substitute(as_a) for e in y.index)
        for x, y in combinations([*loads, *loads[::-1]], 2)
        if any(a in e.dims() for e in x.index) and any(b in e.dims() for e in y.index)
    )


def _fresh(program: Program, name: str) -> str:
    taken = [*program.sizes, *program.tensors]
    return next(n for n in (name, *(f"{name}_{k}" for k in range(len(taken)))) if n not in taken)


def _renamed(program: Program, exprs: Mapping[str, IndexExpr], sizes: Mapping[str, int]) -> Program:
    """Each dimension d of ``exprs`` is ``exprs[d]``; ``sizes`` has those that are new or change."""
    builder = ProgramBuilder(program.name)
    for d in program.dims:
        for name in (*exprs[d.name].dims(), d.name) if d.name in exprs else (d.name,):
            size = sizes.get(name, d.size if name == d.name and d.name not in exprs else 0)
            if size and name not in builder.sizes:
                builder.dim(name, size)
    for tensor in program.inputs:
        builder.input(tensor.name, tensor.shape, tensor.dtype, tensor.strides)
    new: list[int] = []
    for node in program.nodes:
        new.append(_substituted(builder, node, [new[a] for a in node.args], exprs))
    builder.outputs.extend(
        Output(o.tensor, new[o.node], tuple(e.substitute(exprs) for e in o.index))
        for o in program.outputs
    )
    return builder.build()


def _substituted(
    builder: ProgramBuilder, node: Node, args: Sequence[int], exprs: Mapping[str, IndexExpr]
) -> int:
    attr = node.attr
    if node.op == "load":
        return builder.load(node.access.tensor, [e.substitute(exprs) for e in node.access.index])
    if isinstance(attr, IndexExpr):
        return builder.index(attr.substitute(exprs))
    if isinstance(attr, Predicate):
        return builder.mask(attr.substitute(exprs))
    if node.op == "size":
        # The sums that were merged are over dimensions of one size.
        return builder.size(exprs[str(attr)].dims()[0] if str(attr) in exprs else str(attr))
    if node.op not in _REDUCTIONS:
        return copied(builder, node, args)
    over = [exprs[d].dims()[0] if d in exprs else d for d in node.reduced]
    if node.op == "matmul":
        return builder.matmul(args[0], args[1], over)
    return (builder.sum if node.op == "sum" else builder.max)(args[0], over)
