"""Families found by searching rewritten programs, and verified against the program itself.

The rewrites are chains of matmuls that are cut, matmuls before long reductions, those split,
variances in one pass, precomputed operands, independent outputs and horizontal fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from mirage_py.search.rewrites.horizontal_fusion import horizontal_fusions, with_unsplit_columns
from mirage_py.search.rewrites.independent_outputs import with_independent_outputs
from mirage_py.search.rewrites.long_reductions import with_split_reductions, with_stored_products
from mirage_py.search.rewrites.parallel_variance import with_parallel_variance
from mirage_py.search.rewrites.pieces import Timed
from mirage_py.search.rewrites.precomputed_operands import with_precomputed_operands
from mirage_py.search.rewrites.product_chains import with_cut_chains
from mirage_py.search.rewrites.product_variance import with_product_variance
from mirage_py.search.tilings.kinds import ONE_KERNEL, has_loops, kind_of
from mirage_py.targets import Target
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph

Search = Callable[[Program], Sequence[UGraph]]

# Families of one kernel for horizontally fused matmuls and all else, cheapest first: with loops,
# and without (where sums are long, none of these fits).
_LOOPED, _STRAIGHT = 8, 2


def with_rewrites(
    program: Program,
    search: Search,
    of_splits: Search,
    of_one_kernel: Search,
    best: Callable[[Sequence[UGraph]], Timed],
    may: Callable[[UGraph], bool],
    target: Target,
) -> list[UGraph]:
    """All such families. ``search`` finds the families of a program, ``of_splits`` those of one
    kernel or with a split reduction, ``of_one_kernel`` those of one kernel alone, all cheapest
    first; ``best`` predicts and keeps the best few. Kernels that occur
    in many families are of families that ``may`` be taken; of the others nobody has asked that.
    """

    def of_piece(piece: Program) -> Timed:
        rewritten = with_rewrites(piece, search, of_splits, of_one_kernel, best, may, target)
        return best([*search(piece), *rewritten])

    def independent(rest: Program) -> list[UGraph]:
        return with_independent_outputs(rest, search, may)

    found = with_cut_chains(program, of_piece)
    of_tiles = with_product_variance(program, of_one_kernel, best, may)
    has_tiles = of_tiles and best(of_tiles)
    found += of_tiles if has_tiles else with_stored_products(program, of_piece)
    in_one_pass = with_parallel_variance(program, of_one_kernel, best, may, target)
    fits = in_one_pass and best(in_one_pass)
    found += in_one_pass if fits else with_split_reductions(program, of_piece, target)
    found += independent(program)
    found += with_precomputed_operands(program, of_splits, independent, may)
    for fusion in horizontal_fusions(program):
        fused = _fused(of_one_kernel(fusion.program), may)
        alone = independent if not fusion.unsplit else lambda _: []
        fused += alone(fusion.program)
        fused += with_precomputed_operands(fusion.program, of_one_kernel, alone, may)
        found += [with_unsplit_columns(u, fusion) for u in fused]
    return found


def _fused(families: Sequence[UGraph], may: Callable[[UGraph], bool]) -> list[UGraph]:
    """The cheapest families of one kernel."""
    ours = [u for u in families if kind_of(u) == ONE_KERNEL]
    looped = (u for u in ours if has_loops(u) and may(u))
    straight = (u for u in ours if not has_loops(u) and may(u))
    return [*islice(looped, _LOOPED), *islice(straight, _STRAIGHT)]
