"""From a family to plans: tiles, warps and stages that fit the target, ranked by the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from mirage_py.codegen.axis_order import REVERSED
from mirage_py.codegen.tiles import Tiling, next_power_of_two
from mirage_py.errors import ScheduleError
from mirage_py.search.cost_model import Estimate, estimate
from mirage_py.search.footprint import WARP_GROUP_ROWS
from mirage_py.search.roles import grid_tiles, loop_tiles, matmul_roles
from mirage_py.targets import Target
from mirage_py.ugraph.plan import LaunchOptions, Plan
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.threads import with_threads
from mirage_py.ugraph.ugraph import BlockGraph, GridAxis, Section, UGraph

_WARPS = (1, 2, 4, 8)
_STAGES = (2, 3, 4, 6)
# A tile larger than this spills whatever the number of warps.
_MAX_TILE_ELEMENTS = 32768
# Elements of the largest tile in a loop without products.
_LIGHT_LOOP_ELEMENTS = 8192
_STREAMED_BYTES = 2 << 20
_PLANS_PER_TILING = 3
# Instances kept of each family, in multiples of what is asked for, before families compete.
_PER_FAMILY = 4
# Families that compete; the others' best instances are predicted to be slower.
_MAX_FAMILIES = 12


@dataclass(frozen=True, slots=True)
class Instance:
    """A plan of a family and what the cost model says of it."""

    family: UGraph
    plan: Plan
    estimate: Estimate


def instances(ugraph: UGraph, target: Target, limit: int) -> tuple[Instance, ...]:
    """The ``limit`` plans of a one-kernel family that the cost model likes best, best first.

    Raises ScheduleError where nothing fits, with the tightest limit.
    """
    (block,) = ugraph.kernels
    if not isinstance(block, BlockGraph):
        raise ScheduleError("only block graphs are instantiated", where=block.name)
    found: list[Instance] = []
    tried = 0
    for instance_block in _tiled(ugraph.program, block):
        tried += 1
        tiling = Tiling(ugraph.program, instance_block)
        if not _is_sensible(tiling):
            continue
        for options in _launch_options(tiling):
            result = estimate(tiling, options, target)
            if result.time_us != float("inf"):
                plan = Plan(replace(ugraph, kernels=(instance_block,)), (options,))
                found.append(Instance(ugraph, plan, result))
    if not found:
        raise ScheduleError(
            f"none of {tried} tilings of {block.name} fits {target.name}",
            where=ugraph.program.name,
            why=f"shared memory is {target.smem_per_block_bytes} bytes a block",
            repair="use smaller dimensions that stay whole in a block, or another target",
        )
    found.sort(key=lambda i: i.estimate.time_us)
    return tuple(found[:limit])


def rank(families: Sequence[UGraph], target: Target, limit: int) -> list[Instance]:
    """The best instances of the best families, best first, without near-copies.

    A family that fits nowhere is left out.
    """
    by_family: list[tuple[Instance, ...]] = []
    for family in families:
        try:
            by_family.append(instances(family, target, _PER_FAMILY * limit))
        except ScheduleError:
            continue
    by_family.sort(key=lambda found: found[0].estimate.time_us)
    pooled = [i for found in by_family[:_MAX_FAMILIES] for i in found]
    pooled.sort(key=lambda i: i.estimate.time_us)
    return [_with_thread_graphs(i) for i in diverse(pooled, limit)]


def _with_thread_graphs(instance: Instance) -> Instance:
    """The instance with the chains of values that stay in registers marked."""
    ugraph = instance.plan.ugraph
    kernels = tuple(with_threads(k) if isinstance(k, BlockGraph) else k for k in ugraph.kernels)
    return replace(instance, plan=replace(instance.plan, ugraph=replace(ugraph, kernels=kernels)))


def diverse(ranked: Sequence[Instance], limit: int) -> tuple[Instance, ...]:
    """The first ``limit`` of a ranking, at most a few of them with the same tiles.

    The model tells tiles and operand orders apart better than it tells launch options apart, and
    families whose kernels differ in trifles tie; measuring near-copies of one plan finds nothing.
    """
    chosen: list[Instance] = []
    counts: dict[tuple[object, ...], int] = {}
    for instance in ranked:
        (block,) = instance.plan.ugraph.kernels
        assert isinstance(block, BlockGraph)
        loops = tuple((s.loop, s.tile) for s in block.sections)
        tiles = (block.grid, loops, instance.plan.options[0].flag("axes"))
        counts[tiles] = counts.get(tiles, 0) + 1
        if counts[tiles] <= _PLANS_PER_TILING:
            chosen.append(instance)
        if len(chosen) == limit:
            break
    return tuple(chosen)


def _tiled(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    roles = matmul_roles(program, block)
    grid = _grid_order(program, block)
    grid_choices = [grid_tiles(program, roles, d) for d in grid]
    loops = [i for i, s in enumerate(block.sections) if s.loop is not None]
    for tiles in product(*grid_choices):
        axes = tuple(GridAxis(d, t) for d, t in zip(grid, tiles, strict=True))
        yield from _loop_choices(program, replace(block, grid=axes), loops)


def _has_product(block: BlockGraph, section: Section) -> bool:
    return any(block.nodes[n].op == "matmul" for n in section.nodes)


def _loop_choices(program: Program, block: BlockGraph, loops: list[int]) -> Iterator[BlockGraph]:
    """One tile for all loops with products over the same dimension; light loops follow from it."""
    heavy = [i for i in loops if _has_product(block, block.sections[i])]
    dims = tuple(dict.fromkeys(d for i in heavy if (d := block.sections[i].loop) is not None))
    for tiles in product(*(loop_tiles(program, d, has_dot=True) for d in dims)):
        chosen = dict(zip(dims, tiles, strict=True))
        sections = list(block.sections)
        for i in loops:
            dim = sections[i].loop
            assert dim is not None
            tile = chosen[dim] if i in heavy else _light_tile(program, block, sections[i])
            sections[i] = replace(sections[i], tile=tile)
        yield replace(block, sections=tuple(sections))


def _light_tile(program: Program, block: BlockGraph, section: Section) -> int:
    """The widest tile that keeps a loop of elementwise work and reductions in registers."""
    dim = section.loop
    assert dim is not None
    others = 1
    for node in (block.nodes[n] for n in section.nodes):
        if dim in node.dims:
            extent = 1
            for d in node.dims:
                if d != dim:
                    extent *= next_power_of_two(block.grid_tiles.get(d) or program.sizes[d])
            others = max(others, extent)
    return max(32, min(next_power_of_two(program.sizes[dim]), _LIGHT_LOOP_ELEMENTS // others))


def _launch_options(tiling: Tiling) -> Iterator[LaunchOptions]:
    block = tiling.block
    flags = _flags(tiling.program, block)
    loops = [s for s in block.sections if s.loop is not None]
    heavy = [_has_product(block, s) for s in loops]
    for order in _axis_orders(tiling):
        chosen = (*flags, ("axes", order)) if order else flags
        for warps, stages in product(_WARPS, _STAGES if loops else (1,)):
            # A loop without products needs few stages; more would only take shared memory.
            depth = tuple(stages if h or not any(heavy) else min(stages, 3) for h in heavy)
            yield LaunchOptions(warps, depth, tuple(sorted(chosen)))


def _grid_order(program: Program, block: BlockGraph) -> tuple[str, ...]:
    """Neighbouring blocks should share the largest tensors: what those do not depend on runs
    fastest.
    """

    def weight(dim: str) -> int:
        reads = [n.access for _, n in block.loads()]
        return sum(
            program.tensors[a.tensor].bytes
            for a in reads
            if dim in a.dims() and a.tensor in program.tensors
        )

    return tuple(
        sorted((a.dim for a in block.grid), key=lambda d: (weight(d), program.dim_names.index(d)))
    )


def _axis_orders(tiling: Tiling) -> tuple[str, ...]:
    """The natural order of tile axes, and the reversed one where that helps a narrow product.

    Warp-group products need 64 rows; where a product is narrow, swapping its operands makes its
    wide side the rows.
    """
    for number, node in enumerate(tiling.block.nodes):
        if node.op == "matmul":
            section = tiling.block.section_of[number]
            sides = sorted(tiling.live(node.dims, section), key=tiling.axis_order().index)
            extents = [tiling.padded(d, section) for d in sides]
            if len(sides) == 2 and extents[0] < WARP_GROUP_ROWS <= extents[1]:
                return "", REVERSED
    return ("",)


def _flags(program: Program, block: BlockGraph) -> tuple[tuple[str, str], ...]:
    """Cache hints: a large input of which each block reads its own part need not stay in the L2."""
    gridded = [a.dim for a in block.grid if (a.tile or 1) < program.sizes[a.dim]]
    flags: dict[str, str] = {}
    for _, node in block.loads():
        tensor = program.tensors.get(node.access.tensor)
        if tensor is None or tensor.bytes < _STREAMED_BYTES:
            continue
        once = all(d in node.access.dims() for d in gridded)
        reads = sum(n.access.tensor == tensor.name for _, n in block.loads())
        if once and reads == 1:
            flags[f"evict:{tensor.name}"] = "evict_first"
    return tuple(sorted(flags.items()))


def _is_sensible(tiling: Tiling) -> bool:
    block = tiling.block
    for number, node in enumerate(block.nodes):
        if tiling.elements(node.dims, block.section_of[number]) > _MAX_TILE_ELEMENTS:
            return False
        if node.op == "matmul" and not tiling.is_dot(number):
            left, right = (block.nodes[a].dims for a in node.args)
            section = block.section_of[number]
            if tiling.elements(tiling.program.order((*left, *right)), section) > _MAX_TILE_ELEMENTS:
                return False
    return True
