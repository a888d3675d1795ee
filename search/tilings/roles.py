"""Roles of the dimensions of a block-graph family, which determine the tiles that they may have."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import prod

from mirage_py.codegen.tiling.tiles import MIN_DOT_EXTENT, next_power_of_two
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph

# A dot needs 16 rows; up to this many rows a product and a sum on CUDA cores may win.
MAX_VECTOR_ROWS = 2
_DOT_TILES = (16, 32, 64, 128, 256)
_MOST_COLUMNS = _DOT_TILES[-1]
_LOOP_TILES = (16, 32, 64, 128, 256, 512)
_VECTOR_TILES = tuple(1 << k for k in range(14))
# Neighbours in memory that a warp reads at once; a smaller tile would waste its transactions.
_COALESCED_BYTES = 64
# Rows up to this length are not divided where a block reads them at several positions.
_REREAD_ROW = 256


@dataclass(frozen=True, slots=True)
class Roles:
    """Dimensions by what a block graph does with them.

    ``batch`` dimensions are in both operands and the result of a matmul, ``sides`` in one operand,
    ``contracted`` are summed over, ``splits`` the outer dimensions of split ones. Along ``fast``
    dimensions elements are contiguous in memory, ``least`` of which are worth an access. ``outer``
    ones are gridded sides of a matmul beside so many elements of the same side that are unsplit in
    each block; ``joint`` ones share a side with other gridded ones, as positions and the heads that
    share a key do.
    Along ``reread`` ones a tensor is read at several positions, as in a rotary embedding: blocks
    with a part of them would read one another's parts too.
    """

    batch: tuple[str, ...]
    sides: tuple[str, ...]
    contracted: tuple[str, ...]
    splits: tuple[str, ...] = ()
    fast: tuple[str, ...] = ()
    least: int = _COALESCED_BYTES // 2
    outer: tuple[tuple[str, int], ...] = ()
    joint: tuple[str, ...] = ()
    reread: tuple[str, ...] = ()


def roles_of(
    scope: Program, block: BlockGraph, splits: tuple[str, ...] = (), backend: str = "triton"
) -> Roles:
    """The roles in one block graph. ``scope`` holds every tensor that it reads or writes.

    That 64 bytes of float32 are worth an access was measured of CUDA kernels alone.
    """
    batch: dict[str, None] = {}
    sides: dict[str, None] = {}
    contracted: dict[str, None] = {}
    outer: dict[str, int] = {}
    joint: dict[str, None] = {}
    # Several heads in a block of attention, or several matmuls in a block, were not measured so.
    matmuls = [n for n in block.nodes if n.op == "matmul"]
    is_single = len(matmuls) == 1 and all(block.nodes[a].op == "load" for a in matmuls[0].args)
    for node in matmuls:
        left, right = (block.nodes[a].dims for a in node.args)
        contracted.update(dict.fromkeys(node.reduced))
        for d in scope.order((*left, *right)):
            if d in node.reduced:
                continue
            (batch if d in left and d in right else sides)[d] = None
        outer |= {
            d: beside if is_single else _MOST_COLUMNS
            for d, beside in _outer_sides(scope, block, left, right).items()
        }
        for mine, others in ((left, right), (right, left)):
            side = [d for d in mine if d not in others and d in block.grid_tiles]
            joint.update(dict.fromkeys(side if len(side) > 1 else ()))
    fast = _fast_dims(scope, block)
    widest = max((scope.tensors[n.access.tensor].dtype.bytes for _, n in block.loads()), default=2)
    least = _COALESCED_BYTES // (max(2, widest) if backend == "cuda" else 2)
    return Roles(
        tuple(batch),
        tuple(sides),
        tuple(contracted),
        splits,
        fast,
        least,
        tuple(outer.items()),
        tuple(joint),
        () if contracted else _reread(scope, block),
    )


def _outer_sides(
    scope: Program, block: BlockGraph, left: tuple[str, ...], right: tuple[str, ...]
) -> dict[str, int]:
    """Gridded dimensions of a side of a matmul of which others are unsplit in a block, and how many
    elements these have.
    """
    found: dict[str, int] = {}
    for mine, others in ((left, right), (right, left)):
        side = [d for d in mine if d not in others]
        unsplit = [next_power_of_two(scope.sizes[d]) for d in side if d not in block.grid_tiles]
        if unsplit:
            found |= {d: prod(unsplit) for d in side if d in block.grid_tiles}
    return found


def _reread(scope: Program, block: BlockGraph) -> tuple[str, ...]:
    """Dimensions in which two loads of one tensor differ that may read the same elements."""
    found: list[str] = []
    for (_, one), (_, other) in combinations(block.loads(), 2):
        if one.access.tensor == other.access.tensor:
            axes = list(zip(one.access.index, other.access.index, strict=True))
            if not any(ix.are_apart(a, b, scope.sizes) for a, b in axes):
                found += [d for a, b in axes if a != b for d in (*a.dims(), *b.dims())]
    return tuple(dict.fromkeys(found))


def grid_tiles(program: Program, roles: Roles, dim: str) -> tuple[int, ...]:
    """Tiles worth trying for a gridded dimension, smallest first."""
    size = program.sizes[dim]
    whole = next_power_of_two(size)
    if dim in roles.batch or dim in roles.splits:
        # A batch dimension inside a tile would make a three-dimensional matmul, and two splits in
        # one tile would not be split.
        return (1,)
    beside = dict(roles.outer).get(dim)
    if beside is not None:
        # With the unsplit dimensions beside it a side of tensor cores.
        return (1, *(t // beside for t in _DOT_TILES if beside < t <= whole * beside))
    if dim in roles.reread and whole <= _REREAD_ROW:
        return (whole,)
    if dim in roles.joint:
        # Rows of tensor cores are those of all dimensions together.
        return (
            (1, *(t for t in _DOT_TILES if t <= whole)) if whole >= MIN_DOT_EXTENT else (1, whole)
        )
    if dim in roles.sides:
        vector = (1,) if size <= MAX_VECTOR_ROWS else ()
        return (*vector, *(t for t in _DOT_TILES if t <= max(MIN_DOT_EXTENT, whole)))
    least = min(whole, roles.least) if dim in roles.fast else 1
    return tuple(t for t in _VECTOR_TILES if least <= t <= whole)


def loop_tiles(program: Program, roles: Roles, dim: str, *, heavy: bool) -> tuple[int, ...]:
    """Tiles worth trying for a loop over a dimension, ``heavy`` with matmuls: of a batch of them,
    as of groups that share a scale, one an iteration.
    """
    whole = next_power_of_two(program.sizes[dim])
    if heavy and dim in roles.batch:
        return (1,)
    # Over the splits of a dimension a matmul only combines what another kernel summed.
    if heavy and dim not in roles.splits:
        return tuple(t for t in _LOOP_TILES if t <= max(MIN_DOT_EXTENT, whole))
    return tuple(t for t in _VECTOR_TILES if t <= whole)


def _fast_dims(scope: Program, block: BlockGraph) -> tuple[str, ...]:
    """Dimensions that index the axis of stride 1 of every tensor that depends on them."""
    fast: dict[str, bool] = {}
    for node in block.nodes:
        if node.op != "load" and not node.op.startswith("store"):
            continue
        access = node.access
        strides = scope.tensors[access.tensor].element_strides
        for expr, stride in zip(access.index, strides, strict=True):
            for d in expr.dims():
                fast[d] = fast.get(d, True) and stride == 1
    return tuple(d for d, always in fast.items() if always)
