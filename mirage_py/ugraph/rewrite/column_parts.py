"""Matmuls whose columns are read in two places: one matmul for each part.

Rotary positions pair column i of a head with column i + n/2. Read at both, the product would be
computed for each place anew. With its columns counted as (part, i) the product of each part is
computed once, over i alone, and a result chooses by the part what it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import gcd

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.concatenations import without_choices
from mirage_py.ugraph.rewrite.dims import fresh_dim, reduced_dims, with_dims
from mirage_py.ugraph.rewrite.rebuild import Rule, copied, rebuild

# Each part is a product in the same block: rotary positions on three quarters of a head have four.
_MOST_PARTS = 8


def with_column_parts(program: Program) -> Program:
    """The program with the columns of such products in parts; inputs and outputs stay.

    A program that reads values in memory is in kernels that are not changed.
    """
    if any(n.op == "read" for n in program.nodes):
        return program
    reduced = dict.fromkeys(reduced_dims(program))
    for dim in [d for d in program.sizes if d not in reduced]:
        size = program.sizes[dim]
        starts = _starts(program, dim)
        width = gcd(size, *starts)
        if starts and 1 < size // width <= _MOST_PARTS:
            program = _cut(program, dim, width)
    return program


def _starts(program: Program, dim: str) -> list[int]:
    """Where pieces of a dimension begin by which products are chosen, if one of it reads what
    another product reads elsewhere.
    """
    loads = [n for n in program.nodes if n.op == "load"]
    again = any(
        one.access.tensor == other.access.tensor and one.access != other.access and dim in one.dims
        for one, other in permutations(loads, 2)
    )
    is_product = any(n.op in REDUCING and dim in n.dims for n in program.nodes)
    found = []
    for node in program.nodes if again and is_product else ():
        holds = program.nodes[node.args[0]].attr if node.op == "where" else None
        if not isinstance(holds, Predicate) or len(holds.exprs) != 2:
            continue
        left, right = holds.exprs
        is_place = left == ix.dim(dim) and right.op == "const"
        chosen = cone(program.nodes, node.args[1:])
        if is_place and any(program.nodes[n].op in REDUCING for n in chosen):
            found += [right.value] if 0 < right.value < program.sizes[dim] else []
    return found


def _cut(program: Program, dim: str, width: int) -> Program:
    """With ``dim`` as parts of ``width``, and each result chosen by the part."""
    part, count = dim, program.sizes[dim] // width
    if width > 1:
        part = fresh_dim(program, dim)
        expr = ix.dim(part) * width + ix.dim(dim)
        program = with_dims(program, {dim: expr}, {part: count, dim: width})
    results = [o.node for o in program.outputs if part in program.nodes[o.node].dims]
    return without_choices(rebuild(program, {n: _chosen(program, n, part) for n in results}))


def _chosen(program: Program, result: int, part: str) -> Rule:
    """The result at each part; what chose by the part has one operand then."""

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        whole = copied(builder, program.nodes[result], args)
        count = builder.sizes[part]
        *others, last = [builder.substitute(whole, {part: ix.const(n)}) for n in range(count)]
        for number in reversed(range(count - 1)):
            is_here = builder.mask(ix.compare("lt", ix.dim(part), number + 1))
            last = builder.apply("where", is_here, others[number], last)
        return last

    return rule
