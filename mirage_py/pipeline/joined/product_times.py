"""Times of implicit matmuls: the cost model's, corrected by 107 kernels measured on an H200.

The cost model assumes matmuls with row-major operands. The corrections for images in windows are
fitted to ``benchmarks/results/h200-joined-by-hand.json``: loop steps shorter than a memory line,
steps over several window positions, tiles over several samples, and the L2 traffic of TF32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, prod

from mirage_py.search.rank.instance import Instance
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

_LINE_BYTES = 128
_HALF_BYTES = 2
# Exponents of two. With half types a step of half a line takes 1.2 times as long, one over two
# positions 1.1 times, a tile over several samples 1.3 times.
_SHORT, _POSITIONS, _SAMPLES = 0.28, 0.15, 0.35
# Tiles that are longer along places than along results; and tiles of more than 256 places.
_UNEVEN, _TALL = 0.1, 0.7
# Eight warps instead of four, with the same tile.
_WARPS = 0.05
_MOST_ROWS = 256
# Bytes of float32 operands that all blocks together read in a microsecond.
_L2_BYTES_PER_US = 5.6e6


@dataclass(frozen=True, slots=True)
class Tile:
    """One loop step of a block: ``rows`` places (of several samples if ``apart``) by ``columns``
    results by ``steps`` along K, of which ``channels`` are contiguous in the image.
    ``traffic_bytes`` is what all blocks read.
    """

    element_bytes: int
    channels: int
    steps: int
    rows: int
    columns: int
    apart: bool
    warps: int
    traffic_bytes: float

    def time_us(self, model_us: float) -> float:
        """The corrected time of a kernel for which the cost model says ``model_us``."""
        power = _POSITIONS * log2(max(1.0, self.steps / self.channels))
        power += _UNEVEN * log2(max(1.0, self.rows / self.columns))
        power += _WARPS if self.warps > 4 else 0.0
        power += _TALL * log2(max(1.0, self.rows / _MOST_ROWS))
        if self.element_bytes > _HALF_BYTES:
            return float(max(model_us, self.traffic_bytes / _L2_BYTES_PER_US) * 2.0**power)
        run_bytes = min(self.channels * self.element_bytes, _LINE_BYTES)
        power += _SHORT * log2(max(1.0, run_bytes / (self.steps * self.element_bytes)))
        power += _SAMPLES if self.apart else 0.0
        return float(model_us * 2.0**power)


def by_times(instances: Sequence[Instance]) -> list[tuple[Instance, float]]:
    """The plans with their corrected times, fastest first."""
    found = []
    for instance in instances:
        tile = tile_of(instance)
        us = instance.estimate.time_us
        found.append((instance, us if tile is None else tile.time_us(us)))
    return sorted(found, key=lambda pair: pair[1])


def tile_of(instance: Instance) -> Tile | None:
    """The tile of a plan's implicit matmul; None if it has none."""
    ugraph = instance.plan.ugraph
    for block, options in zip(ugraph.kernels, instance.plan.options, strict=True):
        if not isinstance(block, BlockGraph):
            continue
        for node in block.nodes:
            if node.op == "matmul":
                pair = [_loaded(block, n) for n in node.args]
                image, weight = pair
                if image is not None and weight is not None:
                    return _tile(ugraph, block, image, weight, options.num_warps)
    return None


def _loaded(block: BlockGraph, number: int) -> Access | None:
    """The access that an operand is loaded by; None if it is computed."""
    node = block.nodes[number]
    while node.op not in ("load", "matmul") and len(node.args) == 1:
        node = block.nodes[node.args[0]]
    return node.access if node.op == "load" else None


def _tile(ugraph: UGraph, block: BlockGraph, image: Access, weight: Access, warps: int) -> Tile:
    sizes = ugraph.scope.sizes
    loops = {s.loop: s.tile for s in block.sections if s.loop is not None}
    tiles = {
        d: min(loops.get(d) or block.grid_tiles.get(d) or size, size) for d, size in sizes.items()
    }
    summed = [d for d in image.dims() if d in weight.dims()]
    places = [d for d in image.dims() if d not in summed]
    columns = [d for d in weight.dims() if d not in summed]
    tensor = ugraph.tensors[image.tensor]
    steps, depth = (prod(x[d] for d in summed) for x in (tiles, sizes))
    blocks = prod(-(-sizes[d] // tiles[d]) for d in (*places, *columns))
    rows, across = (prod(tiles[d] for d in dims) for dims in (places, columns))
    return Tile(
        element_bytes=tensor.dtype.bytes,
        channels=tensor.shape[-1],
        steps=steps,
        rows=rows,
        columns=across,
        apart=sum(tiles[d] > 1 for d in places) > 1,
        warps=warps,
        traffic_bytes=float(blocks * (rows + across) * depth * tensor.dtype.bytes),
    )
