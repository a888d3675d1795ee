"""How tiles of an implicit matrix product read their image: in whole lines of memory, or in pieces.

A tile is so many places and so many steps of the sum. Of neighbouring places the pixels, with all
of their channels, lie side by side; those of other samples do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirage_py.search.rank.instance import Instance
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

_LINE_BYTES = 128
# Plans up to so many times the best prediction are looked at.
_NEAR = 1.3
# Of a kernel's time, what grows with the lines that it asks for.
_OF_LINES = 0.25


def by_lines(instances: Sequence[Instance]) -> list[Instance]:
    """The plans near the best by their predictions and by the lines that their tiles read."""
    best_us = min((i.estimate.time_us for i in instances), default=0.0)
    near = [i for i in instances if i.estimate.time_us <= _NEAR * best_us]
    known: dict[object, float] = {}

    def time_us(instance: Instance) -> float:
        key = instance.tiling
        if key not in known:
            known[key] = pieces(instance.plan.ugraph)
        return instance.estimate.time_us * (1 + _OF_LINES * (known[key] - 1))

    return sorted(near, key=time_us)


def pieces(ugraph: UGraph) -> float:
    """Bytes of the lines that a tile of an image touches, to those that it reads: 1 where they are
    whole; the worst of all loads in windows.
    """
    worst = 1.0
    for block in ugraph.kernels:
        if isinstance(block, BlockGraph):
            for number, node in block.loads():
                access = node.access
                if any(not e.is_dim and e.op != "const" for e in access.index):
                    tensor = ugraph.tensors[access.tensor]
                    tiles = _tiles(ugraph, block, number, access)
                    worst = max(worst, _lines(tensor, access, tiles, ugraph))
    return worst


def _tiles(ugraph: UGraph, block: BlockGraph, load: int, access: Access) -> dict[str, int]:
    section = block.sections[block.section_of[load]]
    found = {}
    for d in access.dims():
        tile = section.tile if section.loop == d else block.grid_tiles.get(d)
        found[d] = min(tile or ugraph.scope.sizes[d], ugraph.scope.sizes[d])
    return found


def _lines(tensor: Tensor, access: Access, tiles: dict[str, int], ugraph: UGraph) -> float:
    # The second tile along each axis, where there is one.
    begins = {d: t if 2 * t <= ugraph.scope.sizes[d] else 0 for d, t in tiles.items()}
    grid = np.meshgrid(*(begins[d] + np.arange(t) for d, t in tiles.items()), indexing="ij")
    env = dict(zip(tiles, grid, strict=True))
    strides = zip(access.index, tensor.element_strides, strict=True)
    places = sum((e.evaluate(env) * stride for e, stride in strides), np.zeros(1, np.int64))
    elements = np.unique(places)
    lines = np.unique(elements * tensor.dtype.bytes // _LINE_BYTES)
    return max(1.0, len(lines) * _LINE_BYTES / (len(elements) * tensor.dtype.bytes))
