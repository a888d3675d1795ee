"""The emitter of one kernel: from a typed block graph to its head and its sections in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.analysis.row_reductions import (
    RowReductions,
    with_row_reductions,
)
from mirage_py.codegen.cuda.cluster.cluster_cut import cluster_plan
from mirage_py.codegen.cuda.kernel.cluster_exchange import ClusterExchange, received_loads
from mirage_py.codegen.cuda.kernel.emitters import Emitters
from mirage_py.codegen.cuda.kernel.loops import LoopEmitter
from mirage_py.codegen.cuda.kernel.phase_emitter import PhaseEmitter
from mirage_py.codegen.cuda.kernel.straight_line import StraightLineEmitter
from mirage_py.codegen.cuda.layout.layout_modes import decided_layouts
from mirage_py.codegen.cuda.layout.staging import staged_loads
from mirage_py.codegen.cuda.pipeline.persistent_pipeline import PersistentPipeline
from mirage_py.codegen.cuda.pipeline.tma_pipeline import TmaPipeline
from mirage_py.codegen.cuda.schedule.warp_shifts import own_shifts
from mirage_py.codegen.cuda.text.c_text import C_TYPES
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.cuda.writer.grid_positions import grid_positions, unsplit_positions
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.tiling.dependent_launch import ALONE, LaunchOrder
from mirage_py.codegen.tiling.valid_sizes import MAX_INT32
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import ACCESSES
from mirage_py.ugraph.ir.program import Program, Tensor


class KernelEmitter:
    """Emits one typed block graph."""

    def __init__(
        self,
        program: Program,
        typed: TypedBlock,
        tensors: Mapping[str, Tensor],
        options: LaunchConfig,
        in_base_two: Collection[str],
        order: LaunchOrder = ALONE,
    ) -> None:
        self.options = options
        self.order = order
        made = RowReductions(typed, {}, ())
        if options.producer_sums:
            made = with_row_reductions(program, typed, tensors)
        typed, known = made.typed, {**tensors, **made.tensors}
        cut = cluster_plan(program, typed, known)
        axes = options.reversed_axes
        self.facts = BlockAnalysis(program, typed, known, axes, in_base_two, cut, [*made.tensors])
        self.block = self.facts.block
        self.tiling = self.facts.tiling
        used = {n.access.tensor for n in self.block.nodes if n.op in ACCESSES}
        self.pointers = tuple(t for t in tensors if t in used)
        self._refuse_types(tensors)
        is_wide = any(tensors[t].last_offset > MAX_INT32 for t in self.pointers)
        self.depths = self._depths()
        self.staged = staged_loads(self.facts, self.depths)
        self.received = {} if cut is None else received_loads(self.facts, cut)
        self.staged |= self.received
        layouts = decided_layouts(self.facts, options)
        # Without thread graphs every elementwise result goes through shared memory, for comparison.
        self.has_threads = options.thread_graphs
        if self.has_threads:
            layouts.own_shifts.update(own_shifts(self.facts, layouts, self.staged))
        self.out = Emission(self.facts, layouts, options, is_wide)
        self.out.memory.is_reused = options.memory_reuse
        self.out.row_reductions = {row.load: row for row in made.sums}
        self.emitters = Emitters(self.out, self.staged, self.received, self.depths)
        self.pipeline = self.emitters.pipeline
        self._refuse_row_reductions()
        self.cluster = None
        if cut is not None:
            self.cluster = ClusterExchange(
                self.out,
                self.emitters.copies,
                self.pipeline,
                self.received,
                self.emitters.operands.made,
            )

    def _refuse_row_reductions(self) -> None:
        """Sums for the warps that fetch, where there is no group of these, or they cannot."""
        sums, pipeline = self.out.row_reductions, self.pipeline
        is_possible = (
            isinstance(pipeline, TmaPipeline)
            and not isinstance(pipeline, PersistentPipeline)
            and pipeline.roles.has_producer
            and pipeline.roles.registers is not None
            and all(self.facts.section(n) in pipeline.loops for n in sums)
            and all(map(pipeline.row_text.can_write, sums.values()))
            and self.facts.cut is None
        )
        if sums and not is_possible:
            raise ScheduleError(
                "sums 'producer'",
                where=self.block.name,
                why="a group of warps has to fetch all tiles of the loop, and rows be contiguous",
            )

    def _refuse_types(self, tensors: Mapping[str, Tensor]) -> None:
        types = {f"tensor {name}": tensors[name].dtype for name in self.pointers}
        types |= {f"cast %{n}": dtype for n, dtype in enumerate(self.facts.dtypes)}
        for what, dtype in types.items():
            if dtype.name not in C_TYPES:
                raise ScheduleError(
                    f"{what} is of type {dtype}",
                    where=self.block.name,
                    why=f"the CUDA back end knows {', '.join(C_TYPES)}",
                )

    def _depths(self) -> dict[int, int]:
        """Stages of each section with a loop; no more than it has iterations."""
        depths, loops = {}, 0
        for number, section in enumerate(self.block.sections):
            if section.loop is not None:
                stages = self.options.num_stages
                asked = stages[loops] if loops < len(stages) else 1
                tile = self.tiling.padded(section.loop, number)
                iterations = -(-self.facts.program.sizes[section.loop] // tile)
                depths[number] = max(1, min(asked, iterations))
                loops += 1
        return depths

    # -- the kernel ------------------------------------------------------------------------------

    def emit(self) -> None:
        """Write all of it to ``out``."""
        text = PhaseEmitter(self.emitters, self.has_threads)
        straight, loops = StraightLineEmitter(self.emitters, text), LoopEmitter(self.emitters, text)
        if self.order.triggers_next:
            # The GPU places the next kernel's blocks behind all of this one's, where there is room.
            self.out.line("next_kernel_may_start();")
        if isinstance(self.pipeline, PersistentPipeline):
            self._emit_persistent(self.pipeline, straight, loops)
            return
        grid_positions(self.out, self.emitters.uneven)
        self._wait_for_kernel_before()
        if self.cluster is not None:
            self.cluster.begin()
            if self.cluster.all_have_slices:
                straight.issue_ahead(self.cluster)
        if isinstance(self.pipeline, TmaPipeline) and self.pipeline.loops:
            straight.issue_first(self.pipeline.roles)
        self.pipeline.begin_kernel()
        self._sections(straight, loops)
        self.pipeline.end_kernel()

    def _emit_persistent(
        self, pipeline: PersistentPipeline, straight: StraightLineEmitter, loops: LoopEmitter
    ) -> None:
        self._wait_for_kernel_before()
        with self.out.memory.loop():
            pipeline.begin_kernel()
            self.emitters.mma_pipelining.begin_work_tiles()
            with pipeline.each_work_tile():
                self._sections(straight, loops)
            self.emitters.mma_pipelining.end_work_tiles()
        pipeline.end_kernel()

    def _wait_for_kernel_before(self) -> None:
        """Where the kernel starts early; with the tensors that its threads load by themselves."""
        if not self.order.uses_pdl:
            return
        loaded = set()
        for number, node in enumerate(self.block.nodes):
            staged = self.staged.get(number)
            if node.op == "load" and not (staged and staged.is_asynchronous):
                loaded.add(node.access.tensor)
        names = [t for t in self.pointers if t in loaded]
        self.out.line(f"wait_for_kernel_before({', '.join(names)});")

    def _sections(self, straight: StraightLineEmitter, loops: LoopEmitter) -> None:
        for number, section in enumerate(self.block.sections):
            unsplit_positions(self.out, number)
            if section.loop is not None:
                if not isinstance(self.pipeline, PersistentPipeline):
                    straight.issue_for_later(number)
                loops.emit(number, section.loop)
            elif self.cluster is not None and number in self.cluster.cut.exchanges:
                straight.meet(self.cluster, number)
            else:
                straight.emit(section.nodes)

    # -- facts -----------------------------------------------------------------------------------

    @property
    def grid(self) -> int:
        """Blocks of the grid."""
        if isinstance(self.pipeline, PersistentPipeline):
            return self.pipeline.work_tiles.blocks
        return self.tiling.grid_blocks

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster; 1 where blocks have nothing to do with one another."""
        return 1 if self.cluster is None else self.tiling.cluster_blocks

    def parameters(self, written: Collection[str]) -> list[str]:
        """The kernel's parameters."""
        texts = []
        for name in self.pointers:
            kind = C_TYPES[self.facts.tensors[name].dtype.name]
            const = "" if name in written else "const "
            texts.append(f"{const}{kind}* __restrict__ {name}")
        maps = (f"const __grid_constant__ TensorMap {m.name}" for m in self.pipeline.maps)
        return [*texts, *maps]
