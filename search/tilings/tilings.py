"""The tiles of a block-graph family worth a prediction."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from mirage_py.codegen.tiling.contiguity import mean_step
from mirage_py.codegen.tiling.tiles import Tiling, next_power_of_two
from mirage_py.search.tilings.block_body import BlockBody
from mirage_py.search.tilings.roles import grid_tiles, loop_tiles, roles_of
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.ugraph.ir.node import STORES
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section

# A tile larger than this spills whatever the number of warps.
_MAX_TILE_ELEMENTS = 32768
# Elements of the largest tile in a loop without matmuls.
_LIGHT_LOOP_ELEMENTS = 8192
_MIN_LIGHT_TILE = 32
# Programs have few dimensions for a grid; one with a dozen would have millions of grids.
_MOST_GRIDS = 1024
# How often columns of one matmul may be computed again for other columns of another one, where
# that can be; else that many grids are tried.
_MOST_REPEATS = 4
_LEAST_REPEATING = 64
# Tensors up to this size stay in the L2 of any target while a kernel runs.
_SHARED_BY_ALL_BYTES = 8 << 20


def tilings(
    scope: Program,
    block: BlockGraph,
    splits: tuple[str, ...],
    *,
    few: bool = False,
    backend: str = "triton",
    among: Collection[Hashable] | None = None,
) -> Iterator[TiledKernel]:
    """Every sensible tiling of a block graph, or a ``few`` spread over them, or those ``among``
    others, by ``tiles_of``.

    ``scope`` is the program with all tensors that the kernel may refer to; ``splits`` are the outer
    dimensions of split ones.
    """
    roles = roles_of(scope, block, splits, backend)
    body = BlockBody(scope, block)
    grid = _grid_order(scope, block)
    shared = block.cluster_dims
    heavy = tuple(
        i for i, s in enumerate(block.sections) if s.loop is not None and has_matmul(block, s)
    )
    spread = _spread if few else tuple
    dims = tuple(dict.fromkeys(d for i in heavy if (d := block.sections[i].loop) is not None))
    loop_choices = [spread(loop_tiles(scope, roles, d, heavy=True)) for d in dims]
    # Of tiles that the model finds equal the first are tried: with one image and many pixels.
    multiplies = any(n.op == "matmul" for n in block.nodes)
    tried = _grid_order(scope, block, in_memory=False) if multiplies else grid
    grids = product(*_few_enough([spread(grid_tiles(scope, roles, d)) for d in tried]))
    spaces = _spaces(block, heavy)
    for tiles in _without_repetition(scope, block, tried, tuple(grids)):
        tile_of = dict(zip(tried, tiles, strict=True))
        tiled = replace(block, grid=tuple(GridAxis(d, tile_of[d], d in shared) for d in grid))
        extents = _powers_of_two({**scope.sizes, **tile_of})
        for chosen in product(*loop_choices):
            loops = dict(zip(dims, chosen, strict=True))
            if _is_too_large(spaces, extents, _powers_of_two(loops)):
                continue
            whole = _with_loops(scope, tiled, heavy, loops)
            if among is not None and tiles_of(whole) not in among:
                continue
            tiling = Tiling(scope, whole)
            if is_sensible(tiling):
                yield TiledKernel(tiling, body, backend)


def tiles_of(block: BlockGraph) -> Hashable:
    """What tells the tilings of one kernel apart."""
    return tuple(a.tile for a in block.grid), tuple(s.tile for s in block.sections)


def has_matmul(block: BlockGraph, section: Section) -> bool:
    """Whether a section multiplies matrices."""
    return any(block.nodes[n].op == "matmul" for n in section.nodes)


# Dimensions of values; those of a loop with matmuls separately.
_Space = tuple[tuple[str, ...], tuple[str, ...]]


def _spaces(block: BlockGraph, heavy: Sequence[int]) -> tuple[_Space, ...]:
    """What the values of a block go over, whatever the tiles: (all but the loop, the loop)."""
    found: dict[_Space, None] = {}
    for number, section in enumerate(block.sections):
        loop = None if section.loop in block.grid_tiles else section.loop
        for node in (block.nodes[n] for n in section.nodes):
            others = tuple(d for d in node.dims if d != loop)
            along = tuple(d for d in node.dims if d == loop and number in heavy)
            found[others, along] = None
    return tuple(found)


def _is_too_large(
    spaces: Sequence[_Space], extents: Mapping[str, int], loops: Mapping[str, int]
) -> bool:
    """Whether a tile of some value has too many elements, however light loops are tiled: that is
    seen without the tiling.
    """
    return any(
        prod(extents[d] for d in others) * prod(loops[d] for d in along) > _MAX_TILE_ELEMENTS
        for others, along in spaces
    )


def _powers_of_two(extents: Mapping[str, int]) -> dict[str, int]:
    return {d: next_power_of_two(extent) for d, extent in extents.items()}


def _few_enough(choices: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Every second tile of the dimension that has the most, the largest among them, until there are
    not too many grids.
    """
    kept = list(choices)
    while prod(map(len, kept)) > _MOST_GRIDS:
        longest = max(range(len(kept)), key=lambda n: len(kept[n]))
        kept[longest] = kept[longest][::-2][::-1]
    return kept


def _without_repetition(
    scope: Program, block: BlockGraph, dims: Sequence[str], grids: Sequence[Sequence[int]]
) -> Sequence[Sequence[int]]:
    """Grids whose blocks repeat hardly anything; where there are none, some that repeat least.

    Along axes that no value has in common, each block computes for one what others compute too.
    """
    groups = _independent(block, dims)
    if not groups:
        return grids

    def repeats(tiles: Sequence[int]) -> int:
        blocks = {d: -(-scope.sizes[d] // t) for d, t in zip(dims, tiles, strict=True)}
        return prod(prod(sorted(blocks[d] for d in group)[:-1]) for group in groups)

    counts = [repeats(tiles) for tiles in grids]
    kept = [tiles for tiles, n in zip(grids, counts, strict=True) if n <= _MOST_REPEATS]
    least = sorted(range(len(grids)), key=counts.__getitem__)[:_LEAST_REPEATING]
    return kept or [grids[n] for n in sorted(least)]


def _independent(block: BlockGraph, dims: Sequence[str]) -> list[list[str]]:
    """Groups of gridded dimensions of which no value has two."""
    values = [{*n.dims, *n.reduced} if n.op == "matmul" else {*n.dims} for n in block.nodes]
    groups: list[list[str]] = []
    for d in dims:
        strangers = [g for g in groups if any(not _meet(values, d, e) for e in g)]
        groups = [g for g in groups if g not in strangers]
        groups.append([*(e for g in strangers for e in g), d])
    return [g for g in groups if len(g) > 1]


def _meet(values: Sequence[set[str]], one: str, other: str) -> bool:
    return any(one in dims and other in dims for dims in values)


def _spread(tiles: Sequence[int]) -> tuple[int, ...]:
    """Two of the tiles, a small and a large one."""
    last = len(tiles) - 1
    return tuple(dict.fromkeys((tiles[last // 3], tiles[(2 * last + 2) // 3])))


def _with_loops(
    scope: Program, block: BlockGraph, heavy: Sequence[int], tiles: Mapping[str, int]
) -> BlockGraph:
    """One tile for all loops with matmuls over the same dimension; light loops follow from it."""
    sections = [
        section
        if section.loop is None
        else replace(
            section,
            tile=tiles[section.loop] if number in heavy else _light_tile(scope, block, section),
        )
        for number, section in enumerate(block.sections)
    ]
    return replace(block, sections=tuple(sections))


def _light_tile(scope: Program, block: BlockGraph, section: Section) -> int:
    """The widest tile that keeps a loop of elementwise work and reductions in registers."""
    dim = section.loop
    assert dim is not None
    others = 1
    for node in (block.nodes[n] for n in section.nodes):
        if dim in node.dims:
            extent = 1
            for d in node.dims:
                if d != dim:
                    extent *= next_power_of_two(block.grid_tiles.get(d) or scope.sizes[d])
            others = max(others, extent)
    whole = next_power_of_two(scope.sizes[dim])
    return max(min(_MIN_LIGHT_TILE, whole), min(whole, _LIGHT_LOOP_ELEMENTS // others))


def _grid_order(scope: Program, block: BlockGraph, *, in_memory: bool = True) -> tuple[str, ...]:
    """Neighbouring blocks should share the largest tensors: what those do not depend on runs
    fastest. Blocks of a cluster are neighbours in any case. What is not ``in_memory`` order is in
    the program's.

    Without matmuls a tensor that the L2 holds is shared by all blocks in any order. Those along
    which blocks read as much go through the largest tensor in sequence: else blocks at the same
    time are in many rows, of which the memory serves so many pages. A pooled convolution took 555
    us on an H200 with images before rows, 292 in order; ReLU of 3.8 GB 1.89 ms, in order 1.76.
    """
    accesses = [n.access for n in block.nodes if n.op == "load" or n.op in STORES]
    reads = [n.access for _, n in block.loads()]
    if not any(n.op == "matmul" for n in block.nodes):
        reads = [a for a in reads if scope.tensors[a.tensor].bytes > _SHARED_BY_ALL_BYTES]
    largest = max(accesses, key=lambda a: scope.tensors[a.tensor].bytes)

    def step(dim: str) -> float:
        return mean_step(largest, scope.tensors[largest.tensor], dim, scope.sizes[dim])

    def weight(dim: str) -> int:
        return sum(scope.tensors[a.tensor].bytes for a in reads if dim in a.dims())

    dims = [a.dim for a in block.grid]
    number = {d: scope.dim_names.index(d) for d in dims}
    seen = {d: tuple(d in a.dims() for a in reads) for d in dims}

    def place(dim: str) -> tuple[bool, int, int, float, int]:
        # Of rows and columns of two equal operands neither goes through one of them alone.
        together = min(number[d] for d in dims if seen[d] == seen[dim])
        steps = step(dim) if in_memory else 0.0
        return dim not in block.cluster_dims, weight(dim), together, steps, number[dim]

    return tuple(sorted(dims, key=place))


def is_sensible(tiling: Tiling) -> bool:
    """Whether no tile of a block is larger than any number of warps keeps in registers."""
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
