"""Long reductions with few results, which are read again beside what was reduced.

The norm of a whole tensor that scales it, the largest element that a type is scaled by, statistics
of batches and of long rows: a kernel for all of it has one block for each result, which leaves most
of the GPU idle. So the program is cut at the results. Each is then a program without anything to
write but itself, whose reduction is split over as many blocks as the GPU takes; the rest of the
program is elementwise and reads the results.

Matmuls whose results are reduced so, as where a convolution of single points has a batch norm after
it, are kernels of their own before that: no block holds a matmul and all rows of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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


def with_stored_products(program: Program, best: Callable[[Program], Timed]) -> list[UGraph]:
    """Families in which matmuls are kernels of their own whose results have long reductions; none
    where no matmul has. ``best`` finds the best families of a program.
    """
    values = reduced_products(program)
    if not values:
        return []
    stored = stored_tensors(program, values, F32)
    choices = [best(piece(program, stored, v)) for v in values]
    choices.append(best(piece(program, stored)))
    tensors = tuple(stored.values())
    found = (together(program, families, tensors) for families in fastest(choices))
    return list({u.digest: u for u in found if u is not None}.values())


def reduced_products(program: Program) -> tuple[int, ...]:
    """The matmuls to store: what long reductions are of; none where one of them carries the scale
    of an exponential, or waits for another.
    """
    nodes, scaled = program.nodes, _scaled(program)
    products = [n for n, node in enumerate(nodes) if node.op == "matmul"]
    reduced = cone(nodes, _long_values(program, scaled))
    found = [n for n in products if n in reduced]
    operands = cone(nodes, [a for n in products for a in nodes[n].args])
    waits = any(n in operands for n in products)
    return () if waits or any(n in scaled for n in found) else tuple(found)


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
    if any(n.op == "matmul" for n in program.nodes):
        return ()
    nodes, sizes = program.nodes, program.sizes

    def is_few(value: int) -> bool:
        return prod(sizes[d] for d in nodes[value].dims) <= _FEW * target.sms

    return tuple(filter(is_few, _long_values(program, _scaled(program))))


def _long_values(program: Program, scaled: Collection[int]) -> tuple[int, ...]:
    """Results of long reductions that are read beside what was reduced, and are not ``scaled``."""
    nodes = program.nodes
    reduced: list[frozenset[str]] = []
    for node in nodes:
        own = node.reduced if node.op in REDUCING and node.op != "matmul" else ()
        reduced.append(frozenset(own).union(*(reduced[a] for a in node.args)))
    read_again = {
        a
        for node in nodes
        for a in node.args
        if not reduced[a].isdisjoint(node.dims) and reduced[a].isdisjoint(nodes[a].dims)
    }

    def is_long(value: int) -> bool:
        return prod(program.sizes[d] for d in reduced[value]) >= _LONG

    return tuple(v for v in sorted(read_again) if v not in scaled and is_long(v))


def _scaled(program: Program) -> frozenset[int]:
    _, degrees = shiftable_exps(program.nodes, [o.node for o in program.outputs])
    return frozenset(n for n, degree in enumerate(degrees) if degree)
