"""Neighbours of a plan for hill climbing: plans that differ from it in one choice.

The cost model picks the plans that are measured first, but its error is larger than the differences
among the plans near the best. A plan that it ranks too low is usually one step from a plan that it
ranks high: another tile, other warps, another pipeline depth. A step changes one kernel in one way,
within the space that the search ranks in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from mirage_py.codegen.cuda.windows.shares import window_shares
from mirage_py.codegen.tiling.block_order import can_group
from mirage_py.codegen.tiling.dependent_launch import DEPENDENT_LAUNCH, can_use_pdl
from mirage_py.codegen.tiling.descriptors import COPY_ENGINE, described_tiles
from mirage_py.codegen.tiling.tiles import Tiling, next_power_of_two
from mirage_py.codegen.tiling.unmasked_tiles import is_uneven
from mirage_py.search.clusters.clusters import in_a_cluster
from mirage_py.search.model.cost_model import KernelModel
from mirage_py.search.model.launches import STAGES, BackEnd, warp_counts, with_precision
from mirage_py.search.rank.forms import max_splits
from mirage_py.search.space.splits import at_splits, split_counts, split_dims
from mirage_py.search.tilings.hopper_paths import other_paths
from mirage_py.search.tilings.roles import Roles, grid_tiles, loop_tiles, roles_of
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.search.tilings.tilings import has_matmul, is_sensible
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_choices import BlockOrder
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.threads import with_threads
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.rewrite.split_dim import outer_dim, splits_of


def neighbours(plan: Plan, target: Target) -> Iterator[Plan]:
    """Plans that fit the target and differ in one choice of one kernel, in the number of splits, or
    in whether a cluster combines them. ``plan`` itself is not among them.
    """
    others = (*_other_splits(plan, target), *_in_a_cluster(plan, target))
    yield from (p for p in others if _all_fit(p, target))
    for number, kernel in enumerate(plan.ugraph.kernels):
        if not isinstance(kernel, BlockGraph):
            continue
        options = plan.options[number]
        if plan.backend == "triton":
            for other in _by_tma(plan.ugraph, kernel, options, target):
                yield _with_kernel(plan, number, kernel, other)
        else:
            tiling = Tiling(plan.ugraph.scope, kernel)
            uneven = is_uneven(tiling)
            paths = other_paths(
                kernel, options, target, blocks=tiling.grid_blocks, is_uneven=uneven
            )
            for other in (*paths, *_start(plan, number, target)):
                yield _with_kernel(plan, number, kernel, other)
        backend = _back_end(plan)
        if backend == "cuda" and _is_shared(plan.ugraph, kernel, options):
            for block in _window_steps(plan.ugraph, kernel, options):
                yield _with_kernel(plan, number, block, options)
            continue
        for block, options in _steps(plan.ugraph, kernel, plan.options[number], backend):
            if _fits(plan, block, options, target):
                yield _with_kernel(plan, number, block, options)


def _is_shared(ugraph: UGraph, block: BlockGraph, options: LaunchConfig) -> bool:
    """Whether the threads of a kernel over windows share its tile evenly."""
    sizes = ugraph.scope.sizes
    return window_shares(block, sizes, ugraph.tensors, options.num_warps) is not None


def _window_steps(ugraph: UGraph, block: BlockGraph, options: LaunchConfig) -> Iterator[BlockGraph]:
    """Kernels over windows with twice or half the tile along a dimension, or both along two."""
    tiles, sizes = {a.dim: a.tile or 1 for a in block.grid}, ugraph.scope.sizes
    names = [*tiles, ""]
    for up, down in permutations(names, 2):
        other = {d: t * 2 if d == up else t // 2 if d == down else t for d, t in tiles.items()}
        if all(0 < t <= next_power_of_two(sizes[d]) for d, t in other.items()):
            grid = tuple(replace(a, tile=other[a.dim]) for a in block.grid)
            if _is_shared(ugraph, found := replace(block, grid=grid), options):
                yield found


def _other_splits(plan: Plan, target: Target) -> Iterator[Plan]:
    program, most = plan.ugraph.program, max_splits(plan.ugraph, target)
    for dim in split_dims(program):
        for count in _beside(splits_of(program, dim), split_counts(program, dim, most)):
            yield replace(plan, ugraph=at_splits(plan.ugraph, {dim: count}))


def _in_a_cluster(plan: Plan, target: Target) -> Iterator[Plan]:
    """Two kernels that share a reduction as one whose blocks form clusters, with the first one's
    tiles and launch.
    """
    joined = in_a_cluster(plan.ugraph) if plan.backend == "cuda" else None
    if joined is None:
        return
    (block,) = joined.kernels
    assert isinstance(block, BlockGraph)
    if Tiling(joined.program, block).cluster_blocks <= target.max_cluster_blocks:
        joined = replace(joined, kernels=(with_threads(block),))
        yield replace(plan, ugraph=joined, options=plan.options[:1])


def _all_fit(plan: Plan, target: Target) -> bool:
    pairs = zip(plan.ugraph.kernels, plan.options, strict=True)
    return all(_fits(plan, k, o, target) for k, o in pairs if isinstance(k, BlockGraph))


def _with_kernel(plan: Plan, number: int, block: BlockGraph, options: LaunchConfig) -> Plan:
    kernels, chosen = list(plan.ugraph.kernels), list(plan.options)
    kernels[number], chosen[number] = block, options
    ugraph = replace(plan.ugraph, kernels=tuple(kernels))
    return replace(plan, ugraph=ugraph, options=tuple(chosen))


def _back_end(plan: Plan) -> BackEnd:
    return "cuda" if plan.backend == "cuda" else "triton"


def _steps(
    ugraph: UGraph, block: BlockGraph, options: LaunchConfig, backend: BackEnd
) -> Iterator[tuple[BlockGraph, LaunchConfig]]:
    roles = roles_of(ugraph.scope, block, _splits(ugraph), backend)
    for tiled in (*_grids(ugraph, block, roles), *_loops(ugraph, block, roles)):
        yield tiled, options
    tiling = Tiling(ugraph.scope, block)
    for warps in _beside(options.num_warps, warp_counts(block, tiling, backend)):
        yield block, replace(options, num_warps=warps)
    for place, depth in enumerate(options.num_stages):
        for other in _beside(depth, STAGES):
            stages = options.num_stages
            yield block, replace(options, num_stages=(*stages[:place], other, *stages[place + 1 :]))
    if any(n.op == "matmul" for n in block.nodes):
        yield block, replace(options, reversed_axes=not options.reversed_axes)
        kernel = TiledKernel(tiling, backend=backend)
        for has_excess in kernel.code_forms:
            if has_excess is not options.excess_codes:
                yield block, replace(options, excess_codes=has_excess)
        for precision in kernel.precisions:
            if precision is not options.precision:
                plain = replace(options, matmul=None) if options.precision else options
                yield block, with_precision(plain, precision, backend)
        for order in _other_orders(tiling, options):
            yield block, replace(options, block_order=order)


def _start(plan: Plan, number: int, target: Target) -> Iterator[LaunchConfig]:
    """Programmatic dependent launch, turned on or off."""
    options = plan.options[number]
    may = can_use_pdl(plan.ugraph, waits_first=True)[number]
    if may and target.capability >= DEPENDENT_LAUNCH:
        yield replace(options, early_start=not options.early_start)


def _by_tma(
    ugraph: UGraph, block: BlockGraph, options: LaunchConfig, target: Target
) -> Iterator[LaunchConfig]:
    """TMA descriptors turned on or off, where tiles can be copied by TMA."""
    if target.capability < COPY_ENGINE:
        return
    fetched = replace(options, descriptors=True)
    if described_tiles(block, Tiling(ugraph.scope, block), ugraph.tensors, fetched):
        yield fetched if fetched != options else replace(options, descriptors=False)


def _splits(ugraph: UGraph) -> tuple[str, ...]:
    return tuple(outer_dim(d) for d in split_dims(ugraph.program))


def _grids(ugraph: UGraph, block: BlockGraph, roles: Roles) -> Iterator[BlockGraph]:
    """Other tiles of one grid axis."""
    scope = ugraph.scope
    for place, axis in enumerate(block.grid):
        assert axis.tile is not None
        for tile in _beside(axis.tile, grid_tiles(scope, roles, axis.dim)):
            grid = (*block.grid[:place], replace(axis, tile=tile), *block.grid[place + 1 :])
            yield replace(block, grid=grid)
    if not any(n.op == "matmul" for n in block.nodes):
        yield from _other_shapes(scope, roles, block)


def _other_shapes(scope: Program, roles: Roles, block: BlockGraph) -> Iterator[BlockGraph]:
    """Tiles of two grid axes of which one is narrower and the other as much wider. Without matmuls,
    shapes of one size differ only in how they lie in memory, so a step between them is no slope.
    """
    for one, other in permutations(range(len(block.grid)), 2):
        narrow, wide = block.grid[one], block.grid[other]
        assert narrow.tile is not None
        assert wide.tile is not None
        wider = grid_tiles(scope, roles, wide.dim)
        for tile in grid_tiles(scope, roles, narrow.dim):
            factor = narrow.tile // tile
            if factor > 1 and wide.tile * factor in wider:
                grid = list(block.grid)
                grid[one] = replace(narrow, tile=tile)
                grid[other] = replace(wide, tile=wide.tile * factor)
                yield replace(block, grid=tuple(grid))


def _loops(ugraph: UGraph, block: BlockGraph, roles: Roles) -> Iterator[BlockGraph]:
    """Another tile for all loops over one dimension that multiply matrices, or that do not."""
    scope = ugraph.scope
    kinds = {(s.loop, has_matmul(block, s)): s.tile for s in block.sections if s.loop is not None}
    for (dim, heavy), before in kinds.items():
        assert dim is not None
        assert before is not None
        for tile in _beside(before, loop_tiles(scope, roles, dim, heavy=heavy)):
            sections = tuple(
                replace(s, tile=tile) if (s.loop, has_matmul(block, s)) == (dim, heavy) else s
                for s in block.sections
            )
            yield replace(block, sections=sections)


def _other_orders(tiling: Tiling, options: LaunchConfig) -> Iterator[BlockOrder | None]:
    """Orders of the blocks that are worth a try and are not the one it has. Blocks of a cluster are
    numbered one after the other.
    """
    if tiling.block.cluster_dims:
        return
    orders = (
        None,
        *((BlockOrder.GROUPED,) if can_group(tiling.axes) else ()),
        *((BlockOrder.BACKWARDS, BlockOrder.LONGEST) if is_uneven(tiling) else ()),
    )
    yield from (order for order in orders if order is not options.block_order)


def _fits(plan: Plan, block: BlockGraph, options: LaunchConfig, target: Target) -> bool:
    tiling = Tiling(plan.ugraph.scope, block)
    if not is_sensible(tiling):
        return False
    model = KernelModel(TiledKernel(tiling, backend=plan.backend), target)
    return model.estimate(options).time_us < float("inf")


def _beside(value: int, choices: Sequence[int]) -> Iterable[int]:
    """The choices next to a value, below and above."""
    below = [c for c in choices if c < value]
    above = [c for c in choices if c > value]
    return (*([max(below)] if below else ()), *([min(above)] if above else ()))
