"""The emitter of one kernel: from its plan to its head and its sections in order."""

from __future__ import annotations

from collections.abc import Collection

from mirage_py.codegen.cuda.epilogue.stores import NEXT_MAY_START
from mirage_py.codegen.cuda.kernel.cluster_exchange import ClusterExchange
from mirage_py.codegen.cuda.kernel.emitters import Emitters
from mirage_py.codegen.cuda.kernel.loops import LoopEmitter
from mirage_py.codegen.cuda.kernel.phase_emitter import PhaseEmitter
from mirage_py.codegen.cuda.kernel.straight_line import StraightLineEmitter
from mirage_py.codegen.cuda.pipeline.persistent_pipeline import PersistentPipeline
from mirage_py.codegen.cuda.plan.kernel_plan import KernelPlan
from mirage_py.codegen.cuda.text.c_text import C_TYPES
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.cuda.writer.grid_positions import grid_positions, unsplit_positions
from mirage_py.ugraph.ir.launch_choices import NextStart
from mirage_py.ugraph.ir.node import STORES


class KernelEmitter:
    """Emits one planned kernel to ``out``."""

    def __init__(self, plan: KernelPlan) -> None:
        self.plan = plan
        self.out = Emission(plan)
        self.emitters = Emitters(self.out)
        self.pipeline = self.emitters.pipeline
        self.cluster = None
        if plan.facts.cut is not None:
            self.cluster = ClusterExchange(
                self.out, self.emitters.copies, self.pipeline, self.emitters.operands.made
            )

    def emit(self) -> None:
        """Write all of it to ``out``."""
        text = PhaseEmitter(self.emitters)
        straight, loops = StraightLineEmitter(self.emitters, text), LoopEmitter(self.emitters, text)
        if not self.plan.order.is_chained:
            self._let_next_start()
        if isinstance(self.pipeline, PersistentPipeline):
            self._emit_persistent(self.pipeline, straight, loops)
            return
        grid_positions(self.out, self.plan.uneven)
        self._wait_for_kernel_before(straight, loops)
        if self.cluster is not None:
            self.cluster.begin()
            if self.cluster.all_have_slices:
                straight.issue_ahead(self.cluster)
        if self.plan.pipeline.loops:
            straight.issue_first(self.pipeline.roles)
        self.pipeline.begin_kernel()
        self._sections(straight, loops)
        self.pipeline.end_kernel()

    def _emit_persistent(
        self, pipeline: PersistentPipeline, straight: StraightLineEmitter, loops: LoopEmitter
    ) -> None:
        self._wait_for_kernel_before(straight, loops)
        with self.out.memory.loop():
            pipeline.begin_kernel()
            self.emitters.mma_pipelining.begin_work_tiles()
            with pipeline.each_work_tile():
                self._sections(straight, loops)
            self.emitters.mma_pipelining.end_work_tiles()
        if self._lets_next_start_late:
            self._let_next_start()
        pipeline.end_kernel()

    def _wait_for_kernel_before(self, straight: StraightLineEmitter, loops: LoopEmitter) -> None:
        """Where the kernel starts early; with the tensors that its threads load by themselves."""
        if not self.plan.order.uses_pdl:
            self.emitters.copies.load_places()
            return
        if self.plan.order.is_chained and not isinstance(self.pipeline, PersistentPipeline):
            straight.issue_early()
            loops.issue_early()
        loaded: set[str] = set()
        for number, node in enumerate(self.plan.facts.block.nodes):
            staged = self.plan.staged.get(number)
            if node.op == "load" and not (staged and staged.is_asynchronous):
                loaded.update(node.access.tensors)
            elif node.op in STORES:
                loaded.update(t for expr in node.access.index for t in expr.tensors())
        names = [t for t in self.plan.pointers if t in loaded]
        self.out.line(f"wait_for_kernel_before({', '.join(names)});")
        if self.plan.options.next_start is NextStart.WAITED:
            self._let_next_start()
        self.emitters.copies.load_places()

    @property
    def _lets_next_start_late(self) -> bool:
        options, order = self.plan.options, self.plan.order
        return order.triggers_next and options.next_start is NextStart.STORES

    def _let_next_start(self) -> None:
        # The GPU places the next kernel's blocks after all of this one's, where there is room.
        if self.plan.order.triggers_next:
            self.out.line(NEXT_MAY_START)

    def _sections(self, straight: StraightLineEmitter, loops: LoopEmitter) -> None:
        is_one_tile = not isinstance(self.pipeline, PersistentPipeline)
        for number, section in enumerate(self.plan.facts.block.sections):
            unsplit_positions(self.out, number)
            if is_one_tile and number == len(self.plan.facts.block.sections) - 1:
                self.emitters.stores.lets_next_start = self._lets_next_start_late
            if section.loop is not None:
                if not isinstance(self.pipeline, PersistentPipeline):
                    straight.issue_for_later(number)
                loops.emit(number, section.loop)
            elif self.cluster is not None and number in self.cluster.cut.exchanges:
                straight.meet(self.cluster, number)
            else:
                straight.emit(number)

    def parameters(self, written: Collection[str]) -> list[str]:
        """The kernel's parameters."""
        texts = []
        for name in self.plan.pointers:
            kind = C_TYPES[self.plan.facts.tensors[name].dtype.name]
            const = "" if name in written else "const "
            texts.append(f"{const}{kind}* __restrict__ {name}")
        maps = (f"const __grid_constant__ TensorMap {m.name}" for m in self.pipeline.maps)
        return [*texts, *maps]
