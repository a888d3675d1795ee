"""Deferred sums: reductions over a tile that are finished after the loop.

sum over iterations of (sum over the tile) = sum over the tile of (sum over iterations): the
accumulator keeps one sum per element of the tile and is reduced once after the loop. That takes a
barrier and a shuffle tree out of every iteration for some registers. It holds for rescaled sums
too, whose factor is the same for all elements.
"""

from __future__ import annotations

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Registers that a thread may spend on the lanes of one deferred sum. Where the sum is rescaled each
# lane takes a product in every iteration, and attention that spends 64 has too few blocks on a
# multiprocessor to hide its softmax, or spills.
_MAX_LANES_PER_THREAD = {"accum_sum": 64, "accum_rescaled": 32}


def deferred_sums(block: BlockGraph, tiling: Tiling, options: LaunchConfig) -> dict[int, int]:
    """Sum nodes whose accumulator takes their operand as it is: {sum: accumulator}."""
    users: dict[int, int] = {}
    for node in block.nodes:
        for argument in node.args:
            users[argument] = users.get(argument, 0) + 1
    found = {}
    for number, node in enumerate(block.nodes):
        if node.op not in _MAX_LANES_PER_THREAD:
            continue
        total = block.nodes[node.args[0]]
        section = block.section_of[number]
        if total.op != "sum" or users[node.args[0]] != 1:
            continue
        lanes = tiling.elements(block.nodes[total.args[0]].dims, section)
        if lanes <= _MAX_LANES_PER_THREAD[node.op] * 32 * options.num_warps:
            found[node.args[0]] = number
    return found
