"""The emitters of one kernel: copies, matmuls, accumulators and stores, wired together."""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.cuda.epilogue.stores import Stores
from mirage_py.codegen.cuda.exchange.barriers import Barriers
from mirage_py.codegen.cuda.exchange.exchange import Exchange
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.mma.matmul import MatmulEmitter
from mirage_py.codegen.cuda.mma.mma_pipelining import MmaPipelining
from mirage_py.codegen.cuda.mma.operands import Operands
from mirage_py.codegen.cuda.mma.wgmma import WgmmaEmitter
from mirage_py.codegen.cuda.pipeline.persistent_kernel import WorkTiles
from mirage_py.codegen.cuda.pipeline.persistent_pipeline import PersistentPipeline
from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.pipeline.tma_pipeline import TmaPipeline, can_have_producer
from mirage_py.codegen.cuda.softmax.accumulators import Accumulators
from mirage_py.codegen.cuda.softmax.elementwise import ThreadGraphs
from mirage_py.codegen.cuda.softmax.optimistic import Optimistic
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.tiling.unmasked_tiles import unmasked_range
from mirage_py.ugraph.ir.launch_choices import Arch


class Emitters:
    """The writers of one kernel, which share its ``emission``. ``staged`` are the loads that go
    through shared memory, ``received`` those among them that other blocks of the cluster send,
    ``depths`` the stages of each section with a loop.
    """

    def __init__(
        self,
        emission: Emission,
        staged: dict[int, Staged],
        received: Mapping[int, Staged],
        depths: Mapping[int, int],
    ) -> None:
        out = self.out = emission
        self.facts = emission.facts
        self.staged = staged
        self.received = received
        self.depths = depths
        sections = self.facts.block.sections
        self.live = tuple(unmasked_range(self.facts.tiling, n) for n in range(len(sections)))
        # Dimensions along which blocks have loops of different lengths.
        self.uneven = {d for found in self.live for d in found.dims()}
        self.exchange = Exchange(out)
        self.copies = Copies(out)
        self.pipeline = self._pipeline()
        tile_at = self.pipeline.tile_at
        self.barriers = Barriers(out, self.exchange, self.pipeline, staged)
        groups = WgmmaEmitter(out, tile_at)
        self.operands = Operands(
            out, self.copies, self.exchange, self.pipeline, self.barriers, groups, staged
        )
        need = self.operands.need
        self.graphs = ThreadGraphs(out, need)
        self.optimistic = Optimistic(out, self.graphs)
        self.accumulators = Accumulators(out, self.exchange, self.pipeline, self.graphs.rescaling)
        self.matmul = MatmulEmitter(out, self.copies, self.exchange, groups, staged, tile_at, need)
        self.mma_pipelining = MmaPipelining(
            out, self.pipeline, self.matmul, self.accumulators, self.graphs
        )
        self.pipeline.described = groups.tiles_read()
        self.stores = Stores(out, self.copies, self.exchange, self.graphs, need)

    def _pipeline(self) -> Pipeline:
        """Tiles by cp.async, or by the copy engine where the options ask for it."""
        options = self.out.options
        asks_for_producer = options.producer_warps
        if not options.uses_tma or options.arch is not Arch.SM_90A:
            return Pipeline(self.out, self.copies, self.staged, self.depths)
        # A warp that fetches cannot come to a meeting of blocks before it has fetched everything.
        barriers = {self.facts.section(n): None for n in self.received}
        is_last = len(barriers) == 1 and min(barriers) > max(self.depths, default=-1)
        asks_for_producer &= is_last or not self.facts.block.cluster_dims
        can_stay = (
            asks_for_producer and not self.facts.block.cluster_dims and not self.out.row_reductions
        )
        blocks = options.persistent_blocks
        is_less = 0 < blocks < self.facts.tiling.grid_blocks
        if can_stay and is_less and can_have_producer(self.facts, self.staged):
            work_tiles = WorkTiles(self.out, blocks, self.uneven)
            return PersistentPipeline(
                self.out, self.copies, self.staged, self.depths, self.live, work_tiles
            )
        return TmaPipeline(
            self.out, self.copies, self.staged, self.depths, self.live, asks_for_producer
        )
