"""Families found by searching rewritten programs, and verified against the program itself.

The rewrites are precomputed operands, independent outputs and horizontal fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirage_py.search.rewrites.horizontal_fusion import of_whole_columns, side_by_side
from mirage_py.search.rewrites.independent_outputs import with_outputs_apart
from mirage_py.search.rewrites.precomputed_operands import with_made_operands
from mirage_py.search.tilings.kinds import ONE_KERNEL, kind_of
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

Search = Callable[[Program], Sequence[UGraph]]

# Families of one kernel for products side by side and all else, cheapest first: with loops, and
# without, of which long sums fit none.
_LOOPED, _STRAIGHT = 8, 2


def with_rewrites(program: Program, search: Search, of_one_kernel: Search) -> list[UGraph]:
    """All such families. ``search`` finds the safe families of a program, ``of_one_kernel`` those
    of one kernel alone, both cheapest first.
    """

    def apart(rest: Program) -> list[UGraph]:
        return with_outputs_apart(rest, search)

    found = [*apart(program), *with_made_operands(program, search, apart)]
    for beside in side_by_side(program):
        fused = _fused(of_one_kernel(beside.program))
        if beside.whole:
            made = with_made_operands(beside.program, of_one_kernel)
        else:
            made = [
                *apart(beside.program),
                *with_made_operands(beside.program, of_one_kernel, apart),
            ]
        found += [of_whole_columns(u, beside) for u in (*fused, *made)]
    return found


def _fused(families: Sequence[UGraph]) -> list[UGraph]:
    """The cheapest families of one kernel."""
    ours = [u for u in families if kind_of(u) == ONE_KERNEL]
    looped = [u for u in ours if _loops(u)]
    straight = [u for u in ours if not _loops(u)]
    return [*looped[:_LOOPED], *straight[:_STRAIGHT]]


def _loops(ugraph: UGraph) -> bool:
    return any(isinstance(k, BlockGraph) and k.has_loops for k in ugraph.kernels)
