"""The check that the two axes of a dimension mean the same in all loops over it.

"d.l" and "d.t" are iterations and tiles. A loop that only adds up its tiles computes the same for
all tile sizes. The result of another loop depends on them, as sum_l(sum_t(x)^2) does: two such
loops with different tiles compute different things, but would be one term.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section, UGraph

_ACCUMULATES = {"accum_max": "max", "accum_sum": "sum", "accum_rescaled": "sum"}


def are_cut_alike(ugraph: UGraph, d: str) -> bool:
    """Whether all loops over d whose tiles matter have the same; an open tile may become any."""
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    tiles = [
        section.tile
        for block in blocks
        for section in block.sections
        if section.loop == d and not _adds_up_tiles(block, section)
    ]
    return len(tiles) < 2 or (None not in tiles and len(dict.fromkeys(tiles)) == 1)


def loops_with_tiles(ugraph: UGraph, dims: Sequence[str]) -> tuple[str, ...]:
    """The loops over some dimensions whose tiles matter, as "kernel/section"."""
    return tuple(
        f"{block.name}/{number}"
        for block in ugraph.kernels
        if isinstance(block, BlockGraph)
        for number, section in enumerate(block.sections)
        if section.loop in dims and not _adds_up_tiles(block, section)
    )


def _adds_up_tiles(block: BlockGraph, section: Section) -> bool:
    """Whether a loop reduces its tiles and accumulates these by the same operator, no more: then
    it is one reduction over the dimension, whatever the tiles.
    """
    makers = {
        number: "max" if block.nodes[number].op == "max" else "sum"
        for number in section.nodes
        if block.nodes[number].op in REDUCING and section.loop in block.nodes[number].reduced
    }
    for number in section.nodes:
        node = block.nodes[number]
        by = _ACCUMULATES.get(node.op)
        if by and makers.get(node.args[0]) != by:
            return False
        if any(a in makers for a in (node.args[1:] if by else node.args)):
            return False
    return True
