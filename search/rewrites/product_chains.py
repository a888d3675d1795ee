"""Chains of matmuls that wait for one another, cut into pieces of a few of them.

Two kernels and the library calls between them hold attention, which is two matmuls, split over its
keys. A longer chain (queries through a matrix of their head, then attention to keys that all heads
share, then another matrix) wants three kernels and more. So it is cut at operands of matmuls, where
least goes through memory; every piece is searched by itself, and the best families of the pieces,
each with its own kernels, splits and library calls, are combined, the fastest by the model first.

Large matmuls before or after a norm or a softmax (two layers and a norm of the result) are cut from
one another, too: two kernels would have one matmul in each, and a block of the second all columns
of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from math import prod

from mirage_py.search.rewrites.pieces import Timed, fastest, piece, stored_tensors, together
from mirage_py.search.rewrites.product_variance import has_long_products
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.degrees import shiftable_exps

# Matmuls of one piece that wait for one another.
_LINKS = 2
# Operations of a matmul that takes several times as long as a launch, and the depth of one that
# takes several times as long as its results do to memory and back.
_LARGE, _DEEP = 1 << 33, 512
# A longer chain in two kernels takes long to search, and is slow.
TWO_KERNELS_HOLD = 3
# Of the values where a chain may be cut, so many at once, of so many.
_MOST_CUTS, _MOST_PLACES = 4, 8
# Cuts that are searched: the best, and those that move hardly more.
_CUTS, _NEAR = 2, 1.5
# What one more kernel costs, in bytes of device memory.
_LAUNCH_BYTES = 4 << 20


def with_cut_chains(program: Program, best: Callable[[Program], Timed]) -> list[UGraph]:
    """Families of the pieces in sequence; none where no chain is too long. ``best`` finds the best
    families of a program.
    """
    found: dict[str, UGraph] = {}
    for values in chain_cuts(program):
        stored = stored_tensors(program, values)
        pieces = [*(piece(program, stored, v) for v in values), piece(program, stored)]
        # Small ones first: a large one takes all the time that there is.
        small_first = sorted(range(len(pieces)), key=lambda n: len(pieces[n].nodes))
        timed = {n: best(pieces[n]) for n in small_first}
        for families in fastest([timed[n] for n in range(len(pieces))]):
            whole = together(program, families, tuple(stored.values()))
            if whole is not None:
                found[whole.digest] = whole
    return list(found.values())


def chained_products(program: Program, stored: Collection[int] = ()) -> int:
    """The most matmuls that wait for one another, where no stored value is between them."""
    depth: list[int] = []
    most = 0
    for number, node in enumerate(program.nodes):
        own = (node.op == "matmul") + max((depth[a] for a in node.args), default=0)
        most = max(most, own)
        depth.append(0 if number in stored else own)
    return most


def chain_cuts(program: Program) -> list[tuple[int, ...]]:
    """Sets of values to store so that no piece has too long a chain, each without a value that it
    could do without; what moves least first.
    """
    if chained_products(program) < _LINKS:
        return []
    places = _places(program)
    return _cuts_into(program, 1, _large_results(program, places)) or _cuts_into(
        program, _LINKS, places
    )


def _large_results(program: Program, places: Collection[int]) -> list[int]:
    """Those of the places that large matmuls make, if there are reductions that are no matmuls,
    and one output: the last piece would compute again what others need. Batch norms between them
    store statistics of tiles instead (``product_variance``).
    """
    nodes, sizes = program.nodes, program.sizes
    has_others = any(n.op != "matmul" and n.op in REDUCING for n in nodes)
    if not has_others or len(program.outputs) > 1 or has_long_products(program):
        return []
    # For each value whether all matmuls next before it are large, and there are some.
    large: list[bool | None] = []
    for node in nodes:
        before = [known for a in node.args if (known := large[a]) is not None]
        if node.op == "matmul":
            depth = prod(sizes[d] for d in node.reduced)
            work = 2 * depth * prod(sizes[d] for d in node.dims)
            large.append(work >= _LARGE and depth >= _DEEP)
        else:
            large.append(all(before) if before else None)
    return [v for v in places if large[v]]


def _cuts_into(program: Program, links: int, places: Sequence[int]) -> list[tuple[int, ...]]:
    """Those after which so many matmuls wait for one another."""
    if chained_products(program) <= links:
        return []
    found: list[tuple[int, ...]] = []
    for count in range(1, min(_MOST_CUTS, len(places)) + 1):
        for values in combinations(places, count):
            if any(set(values) > set(fewer) for fewer in found):
                continue
            if chained_products(program, values) <= links:
                found.append(values)
    costs = {values: sum(_moved(program, v) for v in values) for values in found}
    found.sort(key=costs.__getitem__)
    return [v for v in found[:_CUTS] if costs[v] <= _NEAR * costs[found[0]]]


def _places(program: Program) -> list[int]:
    """Operands of matmuls that take a matmul, the smallest of them; none that carries the scale of
    an exponential, which its own kernels alone can shift.
    """
    nodes = program.nodes
    _, degrees = shiftable_exps(nodes, [o.node for o in program.outputs])
    scaled = dict.fromkeys(n for n, degree in enumerate(degrees) if degree)
    operands = dict.fromkeys(a for n in nodes if n.op == "matmul" for a in n.args)
    able = [
        v
        for v in operands
        if v not in scaled and any(nodes[n].op == "matmul" for n in cone(nodes, [v]))
    ]
    able.sort(key=lambda v: (_moved(program, v), v))
    return sorted(able[:_MOST_PLACES])


def _moved(program: Program, value: int) -> int:
    """About what storing a value costs, in bytes."""
    elements = prod(program.sizes[d] for d in program.nodes[value].dims)
    return _LAUNCH_BYTES + 4 * elements
