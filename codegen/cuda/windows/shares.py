"""Block graphs that are sums or maxima over windows, and how threads share their tiles.

A thread computes several neighbouring results: ``registers`` of them along each dimension of the
grid. Windows of neighbours overlap, so an element that is read serves several results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from mirage_py.codegen.cuda.windows.linear import Linear, linear
from mirage_py.codegen.tiling.contiguity import ALIGNMENT_BYTES
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32, DType
from mirage_py.ugraph.ir.index import simplify
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import ELEMENTWISE, LEAF, operator
from mirage_py.ugraph.rewrite.split_dim import outer_dim

# Positions of a window; and times the results of a thread: every step is a line of text.
MOST_POSITIONS = 128
MOST_STEPS = 2048
# Weights of a window that are others for each result of a thread, in registers: more of them
# leave room for few warps. Two results side by side may have twice as many.
_MOST_WEIGHTS, _WEIGHTS_OF_PAIR = 64, 128
_THREADS = 32
_TYPES = (F32, F16, BF16)
_LEAVES = ("load", "const", "mask", "index", "size")


@dataclass(frozen=True, slots=True)
class Shares:
    """``registers`` and ``threads`` along each dimension of the grid, the fastest in memory first;
    ``window`` are the dimensions that are reduced.
    """

    registers: Mapping[str, int]
    threads: Mapping[str, int]
    window: tuple[str, ...]

    @property
    def dims(self) -> tuple[str, ...]:
        """Of the grid, the fastest in memory first."""
        return tuple(self.threads)


def window_shares(
    block: BlockGraph, sizes: Mapping[str, int], tensors: Mapping[str, Tensor], num_warps: int
) -> Shares | None:
    """How threads share a tile of a kernel over windows; None for any other kernel, or if its tiles
    cannot be divided into equal shares.
    """
    window = window_dims(block, sizes, tensors)
    if not window:
        return None
    tiles = {axis.dim: axis.tile or 1 for axis in block.grid}
    left, rest = divmod(prod(tiles.values()), _THREADS * num_warps)
    if rest or not left or any(t & (t - 1) for t in (*tiles.values(), num_warps)):
        return None
    order = fastest_first(block, sizes, tensors)
    registers = dict.fromkeys(order, 1)
    first = order[0]
    wide = vector_width(block, sizes, tensors, first)
    for dim, most in (
        (first, wide),
        *((d, MOST_STEPS) for d in _overlapping(block, window) if d != first),
        (first, MOST_STEPS),
        *((d, MOST_STEPS) for d in order[1:]),
    ):
        taken = min(left, tiles[dim], max(1, most // registers[dim]))
        taken = min(taken, tiles[dim] // registers[dim])
        registers[dim] *= taken
        left //= taken
    positions = prod(sizes[d] for d in window)
    if left > 1 or positions * prod(registers.values()) > MOST_STEPS:
        return None
    return Shares(registers, {d: tiles[d] // registers[d] for d in order}, window)


def window_dims(
    block: BlockGraph, sizes: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """The dimensions that a kernel over windows reduces; none for any other kernel."""
    grid = block.grid_tiles
    reduced = dict.fromkeys(d for n in block.nodes if n.op in REDUCING for d in n.reduced)
    is_plain = (
        len(block.sections) == 1
        and not block.has_loops
        and not block.cluster_dims
        and bool(reduced)
        and not any(d in grid for d in reduced)
        and prod(sizes[d] for d in reduced) <= MOST_POSITIONS
        and all(d in grid or d in reduced for n in block.nodes for d in n.dims)
        and all(_is_known(n) for n in block.nodes)
        and any(_is_windowed(n, reduced) for _, n in block.loads())
    )
    if not is_plain:
        return ()
    stores = [n for _, n in block.stores()]
    # A thread has one result for each of its places: none for each position of a window, as a norm
    # over groups of neighbours has.
    is_whole = all(
        n.op == "store" and set(n.access.dims()) == set(grid) and not n.access.is_look_up
        for n in stores
    )
    used = [n.access for n in block.nodes if n.op in ("load", "store")]
    known = all(tensors[a.tensor].dtype in _TYPES and not a.is_look_up for a in used)
    return tuple(reduced) if stores and is_whole and known else ()


def _is_known(node: Node) -> bool:
    if node.op in (*_LEAVES, *REDUCING, "store"):
        return True
    if node.op == "cast":
        return isinstance(node.attr, DType) and node.attr in _TYPES
    row = operator(node.op)
    return row.kind == ELEMENTWISE and not row.is_bitwise and row.kind != LEAF


def _is_windowed(node: Node, window: Mapping[str, None]) -> bool:
    """Whether an index depends on both the place of a window and the position within it. Which
    part of a split dimension it is of is no such place: parts do not overlap.
    """
    parts = {outer_dim(d) for d in window}
    return any(
        any(d in window for d in e.dims())
        and any(d not in window and d not in parts for d in e.dims())
        for e in node.access.index
    )


def _overlapping(block: BlockGraph, window: Sequence[str]) -> tuple[str, ...]:
    """Grid dimensions along which windows slide."""
    found: dict[str, None] = {}
    for _, node in block.loads():
        for expr in node.access.index:
            dims = expr.dims()
            if any(d in window for d in dims):
                found |= {d: None for d in dims if d in block.grid_tiles}
    return tuple(found)


def fastest_first(
    block: BlockGraph, sizes: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """The grid dimensions in order of their strides in the stored tensor."""
    (_, store), *_ = block.stores()
    steps = {str(t): abs(f) for t, f in flat(store, sizes, tensors).terms}
    far = max(steps.values(), default=0) + 1
    return tuple(sorted(block.grid_tiles, key=lambda d: steps.get(d, far)))


def flat(node: Node, sizes: Mapping[str, int], tensors: Mapping[str, Tensor]) -> Linear:
    """Where an access is, in elements from the first."""
    found = Linear()
    strides = tensors[node.access.tensor].element_strides
    for expr, stride in zip(node.access.index, strides, strict=True):
        found = found.plus(linear(simplify(expr, sizes)).times(stride))
    return found


def vector_width(
    block: BlockGraph, sizes: Mapping[str, int], tensors: Mapping[str, Tensor], first: str
) -> int:
    """How many adjacent results a thread stores at once."""
    width = 16
    for _, node in block.stores():
        tensor = tensors[node.access.tensor]
        terms = {str(t): f for t, f in flat(node, sizes, tensors).terms}
        apart = gcd(*(f for name, f in terms.items() if name != first))
        if terms.get(first) != 1:
            return 1
        most = ALIGNMENT_BYTES // tensor.dtype.bytes
        width = min(width, gcd(apart, most) if apart else most)
    weights = max(
        (
            prod(sizes[d] for d in n.dims if d != first and d not in block.grid_tiles)
            for _, n in block.loads()
            if first in n.dims and not any(d in block.grid_tiles for d in n.dims if d != first)
        ),
        default=1,
    )
    while width > 1 and width * weights > (_MOST_WEIGHTS if width > 2 else _WEIGHTS_OF_PAIR):
        width //= 2
    return width
