"""A form: a family with its numbers of splits fixed, the unit of ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mirage_py.codegen.lowering.precision import dot_types
from mirage_py.search.clusters.clusters import is_clustered
from mirage_py.search.model.library_model import clearing_us, matmul_flops
from mirage_py.search.model.matmul_rates import fastest_rate, program_rate
from mirage_py.search.model.model_constants import constants_of
from mirage_py.search.space.splits import MAX_SPLITS, at_splits, split_choices, split_dims
from mirage_py.search.tilings.kinds import CHAIN, describe, kind_of
from mirage_py.search.tilings.residency import (
    accesses_of,
    in_cache,
    tensors_of,
    touched_bytes,
)
from mirage_py.targets import Target
from mirage_py.ugraph.ir.node import STORES
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph
from mirage_py.ugraph.rewrite.split_dim import outer_dim, splits_of

# What forms that are alike to the model have in common.
Sort = tuple[str, int, bool]


@dataclass(frozen=True, eq=False)
class Form:
    """``ugraph`` is ``family`` at certain numbers of splits, ``in_cache`` the tensors that each of
    its kernels finds in the L2, ``splits`` the outer dimensions of split ones. ``kind`` and
    ``name`` are those of search.tilings.kinds.
    """

    family: UGraph
    ugraph: UGraph
    in_cache: tuple[frozenset[str], ...]
    splits: tuple[str, ...]
    kind: str
    name: str

    @cached_property
    def sort(self) -> Sort:
        """See ``sort_of``."""
        return sort_of(self.ugraph)

    def lower_bound_us(self, target: Target) -> float:
        """No plan of this form is predicted to be faster: every kernel moves what is not in the
        cache once, does its matmuls at the full rate, and is launched.
        """
        return sum(self.kernel_bound_us(n, target) for n in range(len(self.ugraph.kernels)))

    def kernel_bound_us(self, number: int, target: Target) -> float:
        """The part of one kernel in that."""
        return _kernel_bound_us(
            self.ugraph, self.ugraph.kernels[number], self.in_cache[number], target
        )


def sort_of(ugraph: UGraph) -> Sort:
    """The kind, how many kernels, and whether several kernels leave all operands of matmuls in
    memory and have no matmul for which their grid has a dimension too many: then no block computes
    what others do, of which a lower bound knows nothing.
    """
    kind = kind_of(ugraph)
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    repeats = any(
        any(block.nodes[a].op != "load" for a in node.args)
        or any(axis.dim not in (*node.dims, *node.reduced) for axis in block.grid)
        for block in blocks
        for node in block.nodes
        if node.op == "matmul"
    )
    return kind, len(ugraph.kernels), kind == CHAIN and not repeats


def splits_worth_trying(family: UGraph, target: Target) -> tuple[Mapping[str, int], ...]:
    """The numbers of splits that a family may have on the target, the nominal one first; none if
    the family needs clusters that the target lacks. Where all blocks of a cluster get the totals
    of a row, of which each stores its part, their number is a power of two.
    """
    choices = split_choices(family.program, max_splits(family, target))
    shared = {
        d
        for k in family.kernels
        if isinstance(k, BlockGraph)
        for n in k.nodes
        if n.op in STORES
        for d in n.dims
        if d in k.cluster_dims
    }
    inner = {d: outer_dim(d) in shared for d in split_dims(family.program)}
    return tuple(c for c in choices if all(n & (n - 1) == 0 for d, n in c.items() if inner[d]))


def max_splits(family: UGraph, target: Target) -> int:
    """The most splits that are useful, and at most the blocks of a cluster where there is one. Of
    parts that a block holds there are as many as a row has.
    """
    if is_clustered(family):
        return target.max_cluster_blocks
    return max(MAX_SPLITS, *(splits_of(family.program, d) for d in split_dims(family.program)), 0)


def form_of(family: UGraph, target: Target, splits: Mapping[str, int]) -> Form:
    """The family at these numbers of splits; unchanged if it has none."""
    ugraph = at_splits(family, splits)
    outer = tuple(outer_dim(d) for d in split_dims(ugraph.program))
    return Form(family, ugraph, in_cache(ugraph, target), outer, kind_of(ugraph), describe(ugraph))


def _kernel_bound_us(
    ugraph: UGraph, kernel: Kernel, cached: frozenset[str], target: Target
) -> float:
    if isinstance(kernel, BlockGraph):
        touched = touched_bytes(ugraph.scope, accesses_of(kernel))
    else:
        touched = {t: ugraph.tensors[t].bytes for t in tensors_of(kernel)}
    moved = sum(size for t, size in touched.items() if t not in cached)
    work_us = moved / (target.dram_bytes_per_us * constants_of(target).dram)
    extra_us = 0.0
    if isinstance(kernel, BlockGraph):
        work_us = max(work_us, _matmul_us(kernel, ugraph, target))
        added = (ugraph.tensors[t] for t in kernel.added_tensors)
        extra_us = sum(clearing_us(t, target, cached) for t in added)
    elif kernel.op == "matmul":
        args = [ugraph.tensors[t] for t in kernel.args]
        flops = matmul_flops(args, ugraph.tensors[kernel.result])
        work_us = max(work_us, flops / program_rate(ugraph.program, target))
    return work_us + extra_us + target.launch_us


def _matmul_us(block: BlockGraph, ugraph: UGraph, target: Target) -> float:
    """Of all matmuls of a block graph, over all blocks, at the fastest rates for their types."""
    total_us, rounds = 0.0, ugraph.program.fp32_precision.rounds_matmuls
    for number, dtype in dot_types(block, ugraph.tensors).items():
        flops = 2.0
        for d in (*block.nodes[number].dims, *block.nodes[number].reduced):
            flops *= ugraph.program.sizes[d]
        total_us += flops / fastest_rate(target, dtype, rounds=rounds)
    return total_us
