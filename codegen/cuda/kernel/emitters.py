"""The emitters of one kernel: copies, matmuls, accumulators and stores, wired together."""

from __future__ import annotations

from mirage_py.codegen.cuda.epilogue.stores import Stores
from mirage_py.codegen.cuda.exchange.barriers import Barriers
from mirage_py.codegen.cuda.exchange.exchange import Exchange
from mirage_py.codegen.cuda.mma.matmul import MatmulEmitter
from mirage_py.codegen.cuda.mma.mma_pipelining import MmaPipelining
from mirage_py.codegen.cuda.mma.operands import Operands
from mirage_py.codegen.cuda.mma.wgmma import WgmmaEmitter
from mirage_py.codegen.cuda.pipeline.persistent_pipeline import PersistentPipeline
from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.pipeline.tma_pipeline import TmaPipeline
from mirage_py.codegen.cuda.softmax.accumulators import Accumulators
from mirage_py.codegen.cuda.softmax.elementwise import ThreadGraphs
from mirage_py.codegen.cuda.softmax.optimistic import Optimistic
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.emission import Emission


class Emitters:
    """The writers of one kernel, which share its ``emission``."""

    def __init__(self, emission: Emission) -> None:
        out = self.out = emission
        self.plan = emission.plan
        self.facts = emission.facts
        self.exchange = Exchange(out)
        self.copies = Copies(out)
        self.pipeline = self._pipeline()
        tile_at = self.pipeline.tile_at
        self.barriers = Barriers(out, self.exchange, self.pipeline)
        groups = WgmmaEmitter(out, tile_at)
        self.operands = Operands(
            out, self.copies, self.exchange, self.pipeline, self.barriers, groups
        )
        need = self.operands.need
        self.graphs = ThreadGraphs(out, need)
        self.optimistic = Optimistic(out, self.graphs)
        self.accumulators = Accumulators(out, self.exchange, self.pipeline, self.graphs.rescaling)
        self.matmul = MatmulEmitter(out, self.copies, self.exchange, groups, tile_at, need)
        self.mma_pipelining = MmaPipelining(
            out, self.pipeline, self.matmul, self.accumulators, self.graphs
        )
        self.stores = Stores(out, self.copies, self.exchange, self.graphs, need)

    def _pipeline(self) -> Pipeline:
        plan = self.plan.pipeline
        if plan.persistent_blocks:
            return PersistentPipeline(self.out, self.copies)
        return TmaPipeline(self.out, self.copies) if plan.loops else Pipeline(self.out, self.copies)
