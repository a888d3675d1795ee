"""The loops whose tiles matter: the two axes of a dimension are those of one loop over it.

"d.l" and "d.t" are iterations and tiles. A loop that only adds up its tiles computes the same for
all tile sizes. The result of another loop depends on them, as sum_l(sum_t(x)^2) does: two such
loops compute different things for different tiles, but would be one term.
"""

from __future__ import annotations

from mirage_py.axioms.proof.shifts import refuse
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section, UGraph

_ACCUMULATES = {"accum_max": "max", "accum_sum": "sum", "accum_rescaled": "sum"}


def loop_with_tiles(ugraph: UGraph, d: str) -> str:
    """The loop over d whose tiles matter, as "kernel/section"; "" if there is none.

    Raises UnsupportedError for two of them: a proof holds for all tiles of each.
    """
    found = [
        f"{block.name}/{number}"
        for block in ugraph.kernels
        if isinstance(block, BlockGraph)
        for number, section in enumerate(block.sections)
        if section.loop == d and not _adds_up_tiles(block, section)
    ]
    if len(found) > 1:
        raise refuse(f"dimension '{d}', over which the tiles of several loops matter,")
    return found[0] if found else ""


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
