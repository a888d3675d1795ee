"""TMA loads (sm_90): the tensor map of each tensor, and the coordinates of each tile.

TMA fetches a box: here a panel of a tile, of at most 128 bytes a row, which it writes with the
swizzle of ``SharedTile``. Outside of the tensor it reads zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.text.c_text import added, index_text
from mirage_py.codegen.cuda.writer.cuda_kernel import TensorMap
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.text.operator_text import atom
from mirage_py.codegen.tiling.descriptors import is_step, live_axes

_MOST_AXES = 5
_MOST_POINTS = 256
_MOST_PANELS = 16
_GRANULE_BYTES = 16
# Of what it writes to shared memory.
_ALIGNMENT_BYTES = 128


@dataclass(frozen=True, slots=True)
class Box:
    """A tile as the engine sees it: ``axes`` of the tensor, the contiguous one first, the points
    along each, and how many such panels make the tile.
    """

    axes: tuple[int, ...]
    points: tuple[int, ...]
    panels: int


def tma_box(facts: BlockAnalysis, staged: Staged) -> Box | None:
    """How the engine fetches a tile; None where it cannot."""
    load, tile = staged.load, staged.tile
    node, section = facts.block.nodes[load], facts.section(load)
    tensor, index = facts.tensors[node.access.tensor], node.access.index
    live = live_axes(node, facts.tiling, section)
    dims = [d for e in index for d in facts.tiling.live(e.dims(), section)]
    if sorted(dims) != sorted(live.values()) or not all(
        is_step(index[a], d) for a, d in live.items()
    ):
        return None
    axis_of = {d: a for a, d in live.items()}
    rows = tuple(axis_of[d] for d in dict.fromkeys(b[0] for b in tile.rows))
    shown = (axis_of[tile.dim], *rows)
    others = tuple(a for a, e in enumerate(tensor.shape) if a not in shown and e > 1)
    axes = (*shown, *others)
    width = tile.row_bytes // tile.element_bytes
    panels = (1 << len(tile.columns)) // width
    points = (width, *(facts.extent(load, live[a]) for a in rows), *(1 for _ in others))
    strides = tensor.element_strides
    steps = [strides[a] * tile.element_bytes for a in axes[1:]]
    fits = len(axes) <= _MOST_AXES and max(points) <= _MOST_POINTS and panels <= _MOST_PANELS
    aligned = strides[axes[0]] == 1 and all(s > 0 and s % _GRANULE_BYTES == 0 for s in steps)
    # Past the end of the tensor the engine gives zeros, as a masked copy does.
    inside = all(
        index[a].is_dim and facts.program.sizes[d] == tensor.shape[a]
        for a, d in live.items()
        if facts.tiling.has_tail(d, section)
    )
    panel_bytes = tile.row_bytes << len(tile.rows)
    whole = tile.row_bytes % _GRANULE_BYTES == 0 and panel_bytes % _ALIGNMENT_BYTES == 0
    return Box(axes, points, panels) if fits and aligned and inside and whole else None


class TmaLoads:
    """Writes what one thread tells the engine, and collects the maps that it needs."""

    def __init__(self, emission: Emission) -> None:
        self.out = emission
        self.facts = emission.facts
        self.maps: dict[int, TensorMap] = {}
        self._boxes: dict[int, Box] = {}

    def describe(self, staged: Staged, box: Box) -> None:
        """A map for a load's tensor."""
        node = self.facts.block.nodes[staged.load]
        tensor = self.facts.tensors[node.access.tensor]
        strides = tensor.element_strides
        self._boxes[staged.load] = box
        self.maps[staged.load] = TensorMap(
            self.out.fresh(f"{tensor.name}_map"),
            tensor.name,
            tuple(tensor.shape[a] for a in box.axes),
            tuple(strides[a] * tensor.dtype.bytes for a in box.axes[1:]),
            box.points,
            staged.tile.swizzle_bytes,
        )

    def fetch(self, staged: Staged, to_shared: str, barrier: str) -> None:
        """Begin to fetch the tile at the positions that are current."""
        out = self.out
        node, box, tile = self.facts.block.nodes[staged.load], self._boxes[staged.load], staged.tile
        names = {d: atom(out.starts.get(d, "0")) for d in self.facts.program.dim_names}
        texts = [index_text(node.access.index[a], names) for a in box.axes]
        hint = node.access.tensor in out.options.evict_first
        function = f"tma_load_{len(box.axes)}d{'_evict_first' if hint else ''}"
        wide = out.index_type != "int"
        for panel in range(box.panels):
            place = added(to_shared, str(panel * (tile.row_bytes << len(tile.rows))))
            first = added(texts[0], str(panel * box.points[0]))
            at = ", ".join(f"(int)({t})" if wide else t for t in (first, *texts[1:]))
            out.line(f"{function}({place}, &{self.maps[staged.load].name}, {barrier}, {at});")
