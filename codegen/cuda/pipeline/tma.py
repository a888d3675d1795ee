"""TMA loads (sm_90): the tensor map of each tensor, and the coordinates of each tile."""

from __future__ import annotations

from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.plan.tma_boxes import Box
from mirage_py.codegen.cuda.text.c_text import added, index_text
from mirage_py.codegen.cuda.writer.cuda_kernel import Im2col, TensorMap
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.text.operator_text import atom


class TmaLoads:
    """Writes what one thread tells the engine; ``maps`` are the tensor maps of its loads."""

    def __init__(self, emission: Emission) -> None:
        self.out = emission
        self.facts = emission.facts
        self.plan = emission.plan
        self._boxes = self.plan.pipeline.boxes
        self.maps = {n: self._map(self.plan.staged[n], b) for n, b in self._boxes.items()}

    def _map(self, staged: Staged, box: Box) -> TensorMap:
        node = self.facts.block.nodes[staged.load]
        tensor = self.facts.tensors[node.access.tensor]
        strides = tensor.element_strides
        windows = None
        if box.windows is not None:
            windows = Im2col(box.windows.corners, (1, *box.windows.steps, 1))
        return TensorMap(
            self.out.fresh(f"{tensor.name}_map"),
            tensor.name,
            tuple(tensor.shape[a] for a in box.axes),
            tuple(strides[a] * tensor.dtype.bytes for a in box.axes[1:]),
            tuple(n * s for n, s in zip(box.points, box.steps, strict=False)),
            staged.tile.swizzle_bytes,
            () if max(box.steps) == 1 else box.steps,
            windows,
            staged.load in self.plan.in_tf32,
        )

    def fetch(self, staged: Staged, to_shared: str, barrier: str) -> None:
        """Begin to fetch the tile at the positions that are current."""
        out = self.out
        node, box, tile = self.facts.block.nodes[staged.load], self._boxes[staged.load], staged.tile
        names = {d: atom(out.starts.get(d, "0")) for d in self.facts.program.dim_names}
        texts = [index_text(e, names) for e in box.places]
        hint = node.access.tensor in out.options.evict_first
        function = f"tma_load_{len(box.axes)}d{'_evict_first' if hint else ''}"
        offsets = ""
        if box.windows is not None:
            function = f"tma_load_im2col_{len(box.axes)}d"
            offsets = "".join(f", {index_text(e, names)}" for e in box.windows.offsets)
        wide = out.index_type != "int"
        for panel in range(box.panels):
            panel_bytes = box.points[0] * tile.element_bytes << len(tile.rows)
            place = added(to_shared, str(panel * panel_bytes))
            first = added(texts[0], str(panel * box.points[0]))
            at = ", ".join(f"(int)({t})" if wide else t for t in (first, *texts[1:]))
            out.line(
                f"{function}({place}, &{self.maps[staged.load].name}, {barrier}, {at}{offsets});"
            )
