"""Sums of exponentials over a concatenation: a sum for each of its pieces.

A softmax over ``cat([A, C])`` sums exp(where(s < n, A, C)) over one dimension. As sum(exp(A)) +
sum(exp(C)) each piece has its own dimension and no mask: a column of attention sinks is computed
once, not in every tile, and the scores of a cache are the same loop as what is weighted by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.predicates import decided
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.dims import meet, with_dims
from mirage_py.ugraph.rewrite.rebuild import Rule, rebuild


def with_pieces(program: Program) -> Program:
    """The program with such sums cut; with dimensions that become alike as one. Where exponentials
    over a whole concatenation weight something, as in attention to text and image at once, its sums
    stay whole: in pieces they would have other exponentials, and no shift serves both.
    """
    cuts = {n: cut for n in range(len(program.nodes)) if (cut := _cut(program, n)) is not None}
    found = _with_cuts(program, cuts)
    whole = {d for node in found.nodes if node.op == "exp" for d in node.dims}
    if any(dim in whole for dim, _ in cuts.values()):
        found = _with_cuts(program, {n: cut for n, cut in cuts.items() if cut[0] not in whole})
    return found


def _with_cuts(program: Program, cuts: Mapping[int, tuple[str, tuple[int, ...]]]) -> Program:
    if not cuts:
        return program
    before = tuple(program.sizes)
    found = rebuild(program, {n: _pieces(program, n, *cut) for n, cut in cuts.items()})
    found = without_choices(found)
    for piece in [d for d in found.sizes if d not in before]:
        found = _with_shared(found, piece)
    return found


def _cut(program: Program, position: int) -> tuple[str, tuple[int, ...]] | None:
    """The dimension that a sum of exponentials runs over, and where pieces of it begin."""
    node = program.nodes[position]
    if node.op != "sum":
        return None
    below = cone(program.nodes, node.args)
    exps = [n for n in below if program.nodes[n].op == "exp"]
    for dim in node.reduced:
        starts = {
            start
            for n in cone(program.nodes, exps)
            if program.nodes[n].op == "where"
            if (start := _start(program, program.nodes[n].args[0], dim)) is not None
        }
        if starts:
            return dim, (0, *sorted(starts))
    return None


def _start(program: Program, condition: int, dim: str) -> int | None:
    """Where the second piece begins, if the condition is that a position is in the first."""
    holds = program.nodes[condition].attr
    if not isinstance(holds, Predicate) or holds.op != "lt":
        return None
    left, right = holds.exprs
    is_start = left == ix.dim(dim) and right.op == "const" and 0 < right.value < program.sizes[dim]
    return right.value if is_start else None


def _pieces(program: Program, position: int, dim: str, starts: Sequence[int]) -> Rule:
    node = program.nodes[position]
    ends = (*starts[1:], program.sizes[dim])

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        sums: list[int] = []
        for start, end in zip(starts, ends, strict=True):
            at, over = ix.const(start), [d for d in node.reduced if d != dim]
            if end - start > 1:
                own = builder.fresh_dim(dim, end - start)
                at, over = ix.dim(own) + start, [*over, own]
            piece = builder.substitute(args[0], {dim: at})
            sums.append(builder.sum(piece, over) if over else piece)
        return reduce(partial(builder.apply, "add"), sums)

    return rule


def without_choices(program: Program) -> Program:
    """What a condition that always or never holds chooses."""
    rules: dict[int, Rule] = {}
    for position, node in enumerate(program.nodes):
        if node.op == "where":
            condition = program.nodes[node.args[0]].attr
            if not isinstance(condition, Predicate):
                continue
            holds = decided(condition, program.sizes)
            if holds is not None:
                rules[position] = partial(_chosen, 1 if holds else 2)
    return rebuild(program, rules) if rules else program


def _chosen(number: int, builder: ProgramBuilder, args: Sequence[int]) -> int:
    del builder
    return args[number]


def _with_shared(program: Program, piece: str) -> Program:
    """With the piece's dimension as one of equal size that makes exponentials the same."""
    sizes = program.sizes
    alike = [d for d in sizes if sizes[d] == sizes[piece] and not meet(program, d, piece)]
    merged = (with_dims(program, {piece: ix.dim(d)}, {}) for d in alike)
    return min((program, *merged), key=_exps)


def _exps(program: Program) -> int:
    return sum(n.op == "exp" for n in program.nodes)
