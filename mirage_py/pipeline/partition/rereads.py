"""Values that one kernel would compute again for each of its blocks: what is made of products, and
what large products read.
"""

from __future__ import annotations

from math import prod

from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import CONTRACT, LEAF, REDUCE, operator

# A block holds a dimension of this extent: the columns of a head, not the rows of a sequence.
_IN_A_BLOCK = 256


def reread_values(program: Program) -> tuple[int, ...]:
    """Values that contractions go into and that are read along more than fits into a block: keys
    by all queries, gates of a sample by all its rows, hidden values by all columns of the next
    product.

    Sums over rows of scores are not meant, which a block has at hand. Scores are read along the
    columns of a head, which a block holds: attention has none but for its projections.
    """
    nodes = program.nodes
    kinds = [operator(node.op).kind for node in nodes]
    follows: list[bool] = []
    found: dict[int, None] = {}
    for number, node in enumerate(nodes):
        follows.append(
            kinds[number] == CONTRACT
            or (kinds[number] != REDUCE and any(follows[a] for a in node.args))
        )
        reduced = node.reduced if kinds[number] in (CONTRACT, REDUCE) else ()
        space = dict.fromkeys((*node.dims, *reduced))
        for arg in node.args:
            along = prod(program.sizes[d] for d in space if d not in nodes[arg].dims)
            if follows[arg] and nodes[arg].dims and along > _IN_A_BLOCK:
                found[arg] = None
    return tuple(found)


def prologue_flops(program: Program) -> int:
    """Operations of the matmuls that read what is computed of no matmul: rows that are normalised,
    say. Where several blocks have columns of the same rows each computes them again, in registers.
    """
    nodes = program.nodes
    kinds = [operator(node.op).kind for node in nodes]
    follows: list[bool] = []
    total = 0
    for number, node in enumerate(nodes):
        follows.append(kinds[number] == CONTRACT or any(follows[a] for a in node.args))
        if kinds[number] != CONTRACT:
            continue
        for arg in node.args:
            along = prod(program.sizes[d] for d in node.dims if d not in nodes[arg].dims)
            if kinds[arg] != LEAF and not follows[arg] and along > _IN_A_BLOCK:
                total += 2 * prod(program.sizes[d] for d in (*node.dims, *node.reduced))
    return total
