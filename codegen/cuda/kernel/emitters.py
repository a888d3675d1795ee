"""Who writes what of a kernel: the writers of copies, products, sums and stores, put together."""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.cuda.analysis.warp_roles import PRODUCER, PRODUCER_WARPS
from mirage_py.codegen.cuda.epilogue.stores import Stores
from mirage_py.codegen.cuda.exchange.barriers import Meetings
from mirage_py.codegen.cuda.exchange.exchange import Exchange
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.mma.matmul import Products
from mirage_py.codegen.cuda.mma.mma_pipelining import Overlap
from mirage_py.codegen.cuda.mma.operands import Operands
from mirage_py.codegen.cuda.mma.wgmma import WarpGroupProducts
from mirage_py.codegen.cuda.pipeline.persistent_kernel import BLOCKS, Places, blocks_asked
from mirage_py.codegen.cuda.pipeline.persistent_pipeline import StayingPipeline
from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.pipeline.tma_pipeline import EnginePipeline, can_be_fed
from mirage_py.codegen.cuda.softmax.accumulators import Accumulators
from mirage_py.codegen.cuda.softmax.elementwise import ThreadGraphs
from mirage_py.codegen.cuda.softmax.optimistic import Optimistic
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.tiling.descriptors import COPIES, DESCRIPTORS
from mirage_py.codegen.tiling.unmasked_tiles import live_range


class Writers:
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
        self.live = tuple(live_range(self.facts.tiling, n) for n in range(len(sections)))
        # Dimensions along which blocks have loops of different lengths.
        self.uneven = {d for found in self.live for d in found.dims()}
        self.exchange = Exchange(out)
        self.copies = Copies(out)
        self.pipeline = self._pipeline()
        tile_at = self.pipeline.tile_at
        self.meetings = Meetings(out, self.exchange, self.pipeline, staged)
        groups = WarpGroupProducts(out, tile_at)
        self.operands = Operands(
            out, self.copies, self.exchange, self.pipeline, self.meetings, groups, staged
        )
        need = self.operands.need
        self.graphs = ThreadGraphs(out, need)
        self.optimistic = Optimistic(out, self.graphs)
        self.accumulators = Accumulators(out, self.exchange, self.pipeline, self.graphs.rescaling)
        self.products = Products(out, self.copies, self.exchange, groups, staged, tile_at, need)
        self.overlap = Overlap(out, self.pipeline, self.products, self.accumulators, self.graphs)
        self.pipeline.described = groups.tiles_read()
        self.stores = Stores(out, self.copies, self.exchange, self.graphs, need)

    def _pipeline(self) -> Pipeline:
        """Tiles by cp.async, or by the copy engine where the options ask for it."""
        options = self.out.options
        wants_producer = options.flag(PRODUCER) == PRODUCER_WARPS
        by_engine = wants_producer or options.flag(COPIES) == DESCRIPTORS
        if not by_engine or options.flag("arch") != "sm_90a":
            return Pipeline(self.out, self.copies, self.staged, self.depths)
        # A warp that fetches cannot come to a meeting of blocks before it has fetched everything.
        meetings = {self.facts.section(n): None for n in self.received}
        is_last = len(meetings) == 1 and min(meetings) > max(self.depths, default=-1)
        wants_producer &= is_last or not self.facts.block.cluster_dims
        can_stay = wants_producer and not self.facts.block.cluster_dims and not self.out.row_sums
        blocks = blocks_asked(options.flag(BLOCKS))
        is_less = 0 < blocks < self.facts.tiling.grid_blocks
        if can_stay and is_less and can_be_fed(self.facts, self.staged):
            places = Places(self.out, blocks, self.uneven)
            return StayingPipeline(
                self.out, self.copies, self.staged, self.depths, self.live, places
            )
        return EnginePipeline(
            self.out, self.copies, self.staged, self.depths, self.live, wants_producer
        )
