"""Horizontal fusion: matmuls of different widths in one kernel, along one grid axis.

Queries, keys and values multiply the same rows by weights of 4096, 1024 and 1024 columns. With a
grid axis for each, blocks repeat one matmul for every column of another. So the columns are written
as common blocks and columns of each matmul within a block: n = m * 128 + n, k = m * 32 + k and v =
m * 32 + v for 32 blocks m. A block has one m and all of the rest, in tiles that keep their columns
in one dimension, as tensor cores want them; it reads its rows once for all matmuls.

Equal numbers of columns are one dimension, whose tiles are left open.

It is a rewrite of the program, and its families are verified against the program as it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import gcd

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph
from mirage_py.ugraph.rewrite.dims import fresh_dim, meet, own_columns, with_dims

# Columns of the widest matmul in a block, of the narrowest one (tensor cores need as many), and of
# all together.
_WIDEST = (64, 128, 256)
_LEAST, _MOST = 16, 512


@dataclass(frozen=True, slots=True)
class HorizontalFusion:
    """A program with columns in common. Blocks have all of the dimensions ``unsplit``."""

    program: Program
    unsplit: tuple[str, ...] = ()


def horizontal_fusions(program: Program) -> Iterator[HorizontalFusion]:
    """The program with columns of equal number as one dimension, and with blocks of all columns in
    common, for each number of blocks that gives every matmul a tile.
    """
    columns = [own[0] for own in own_columns(program) if len(own) == 1]
    if len(columns) < 2 or any(meet(program, a, b) for a, b in combinations(columns, 2)):
        return
    sizes = program.sizes
    first = {sizes[d]: d for d in columns[::-1]}
    equal = {d: ix.dim(first[sizes[d]]) for d in columns if first[sizes[d]] != d}
    if equal:
        yield HorizontalFusion(with_dims(program, equal, {}))
    if len(first) == 1:
        return
    widths = [sizes[d] for d in columns]
    for widest in _WIDEST:
        blocks = max(widths) // widest
        shares = {d: sizes[d] // blocks for d in columns} if blocks else {}
        if blocks < 2 or gcd(*widths) % blocks or not _fit(tuple(shares.values())):
            continue
        base = fresh_dim(program, "m")
        exprs = {d: ix.dim(base) * share + ix.dim(d) for d, share in shares.items()}
        yield HorizontalFusion(with_dims(program, exprs, {base: blocks, **shares}), tuple(columns))


def _fit(shares: tuple[int, ...]) -> bool:
    """Whether tiles of so many columns are full, and fit a block together."""
    full = all(share >= _LEAST and share & (share - 1) == 0 for share in shares)
    return full and sum(shares) <= _MOST


def with_unsplit_columns(ugraph: UGraph, found: HorizontalFusion) -> UGraph:
    """A family of the program with columns in common, in which blocks have all of a block's."""

    def ungridded(kernel: Kernel) -> Kernel:
        if not isinstance(kernel, BlockGraph):
            return kernel
        return replace(kernel, grid=tuple(a for a in kernel.grid if a.dim not in found.unsplit))

    return replace(ugraph, kernels=tuple(map(ungridded, ugraph.kernels)))
