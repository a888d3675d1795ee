"""Long reductions with few results, which are read again beside what was reduced.

The norm of a whole tensor that scales it, the largest element that a type is scaled by, statistics
of batches and of long rows: a kernel for all of it has one block for each result, which leaves most
of the GPU idle. So the program is cut at the results. Each is then a program without anything to
write but itself, whose reduction is split over as many blocks as the GPU takes; the rest of the
program is elementwise and reads the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from mirage_py.search.rewrites.pieces import Timed, fastest, piece, stored_tensors, together
from mirage_py.targets import Target
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.degrees import shiftable_exps

# Fewer blocks than this for each multiprocessor leave some idle.
_FEW = 2
# Elements that one block would reduce, and then read again.
_LONG = 1 << 16


def with_split_reductions(
    program: Program, best: Callable[[Program], Timed], target: Target
) -> list[UGraph]:
    """Families in which long reductions with few results are kernels of their own, before what
    reads the results; none where there is no such reduction. ``best`` finds the best families of a
    program.
    """
    values = long_reductions(program, target)
    if not values:
        return []
    stored = stored_tensors(program, values, F32)
    choices: list[Timed] = []
    for group in _in_one_pass(program, values):
        jointly = best(piece(program, stored, *group))
        choices += [jointly] if jointly else [best(piece(program, stored, v)) for v in group]
    choices.append(best(piece(program, stored)))
    tensors = tuple(stored.values())
    found = (together(program, families, tensors) for families in fastest(choices))
    return list({u.digest: u for u in found if u is not None}.values())


def _in_one_pass(program: Program, values: Sequence[int]) -> list[tuple[int, ...]]:
    """The values in groups, none of which is reduced from another of its group: one kernel reads
    what all of a group are reduced from.
    """
    nodes = program.nodes
    passes: dict[int, int] = {}
    for value in values:
        reducing = [nodes[n] for n in cone(nodes, [value]) if nodes[n].op in REDUCING]
        below = cone(nodes, [a for node in reducing for a in node.args])
        passes[value] = 1 + max((number for v, number in passes.items() if v in below), default=0)
    groups: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for value, number in passes.items():
        groups.setdefault((number, nodes[value].dims), []).append(value)
    return [tuple(group) for group in groups.values()]


def long_reductions(program: Program, target: Target) -> tuple[int, ...]:
    """The values to store: few results of long reductions, as they are read beside what was
    reduced; none that carries the scale of an exponential, which its own kernels alone can shift.
    """
    nodes = program.nodes
    if any(n.op == "matmul" for n in nodes):
        return ()
    reduced: list[frozenset[str]] = []
    for node in nodes:
        own = node.reduced if node.op in REDUCING else ()
        reduced.append(frozenset(own).union(*(reduced[a] for a in node.args)))
    read_again = {
        a
        for node in nodes
        for a in node.args
        if not reduced[a].isdisjoint(node.dims) and reduced[a].isdisjoint(nodes[a].dims)
    }
    _, degrees = shiftable_exps(nodes, [o.node for o in program.outputs])
    scaled = {n for n, degree in enumerate(degrees) if degree}

    def is_long(value: int) -> bool:
        results = prod(program.sizes[d] for d in nodes[value].dims)
        is_few = results <= _FEW * target.sms
        return is_few and prod(program.sizes[d] for d in reduced[value]) >= _LONG

    return tuple(v for v in sorted(read_again) if v not in scaled and is_long(v))
