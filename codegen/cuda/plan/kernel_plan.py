"""The plan of a kernel: every decision made before its text is emitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.analysis.row_reductions import (
    WARPS,
    RowReduction,
    RowReductions,
    with_row_reductions,
)
from mirage_py.codegen.cuda.cluster.cluster_cut import cluster_plan
from mirage_py.codegen.cuda.layout.code_operands import PrivateTile, private_tiles
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.layout.layout_modes import decided_layouts
from mirage_py.codegen.cuda.layout.mma_partitioning import beside_codes
from mirage_py.codegen.cuda.layout.staging import Staged, received_loads, staged_bytes, staged_loads
from mirage_py.codegen.cuda.layout.warp_tiles import warp_tiles
from mirage_py.codegen.cuda.plan.operand_sources import (
    OperandSources,
    branching_loops,
    operand_sources,
    overwritten_operands,
)
from mirage_py.codegen.cuda.plan.overlap import LoopOverlap, plan_overlap
from mirage_py.codegen.cuda.plan.pipeline_plan import (
    INPUTS,
    Mbarrier,
    PipelinePlan,
    Signal,
    can_reduce_rows,
    plan_pipeline,
    without_stragglers,
)
from mirage_py.codegen.cuda.plan.promotion import Promotion, find_promotion
from mirage_py.codegen.cuda.plan.tile_scheduler import schedule_tiles
from mirage_py.codegen.cuda.schedule.chained_accumulation import (
    AccumulationChains,
    accumulation_chains,
)
from mirage_py.codegen.cuda.schedule.section_order import section_phases
from mirage_py.codegen.cuda.schedule.warp_shifts import own_shifts
from mirage_py.codegen.cuda.text.c_text import C_TYPES
from mirage_py.codegen.cuda.text.layout import Bit
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.tiling.dependent_launch import LaunchOrder
from mirage_py.codegen.tiling.unmasked_tiles import UnmaskedRange, unmasked_range
from mirage_py.codegen.tiling.valid_sizes import MAX_INT32
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.dtypes import F8E4M3, F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import ACCESSES, STORES
from mirage_py.ugraph.ir.program import Program, Tensor

# Work tiles of the largest table.
_MOST_IN_TABLE = 4096


@dataclass(frozen=True)
class KernelPlan:
    """``pointers`` are the tensors among the parameters. ``depths``: the stages of each section
    with a loop; ``live``: what of its loop each section visits. ``staged``: the loads that go
    through shared memory, ``received`` those among them that other blocks of the cluster send, and
    ``row_reductions`` those that producer warps compute. ``private``: the loads that each thread
    copies to shared memory for itself, ``warp_tiles`` those of which each warp copies what it
    reads, with the bits of the warp's number. ``overwritten``: matmuls by wgmma whose left operand
    is copied in each iteration. ``phases``: the nodes of each section, from barrier to
    barrier. ``promotions``: by the first node of a phase, its matmul in slices.
    """

    facts: BlockAnalysis
    options: LaunchConfig
    order: LaunchOrder
    pointers: tuple[str, ...]
    depths: Mapping[int, int]
    live: tuple[UnmaskedRange, ...]
    staged: Mapping[int, Staged]
    received: Mapping[int, Staged]
    private: Mapping[int, PrivateTile]
    warp_tiles: Mapping[int, tuple[Bit, ...]]
    row_reductions: Mapping[int, RowReduction]
    layouts: Layouts
    pipeline: PipelinePlan
    operands: OperandSources
    overlap: Mapping[int, LoopOverlap]
    overwritten: tuple[int, ...]
    chains: AccumulationChains
    phases: tuple[tuple[tuple[int, ...], ...], ...]
    promotions: Mapping[int, Promotion]

    @property
    def grid(self) -> int:
        """Blocks of the grid."""
        return self.pipeline.persistent_blocks or self.facts.tiling.grid_blocks

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster; 1 where blocks have nothing to do with one another."""
        return 1 if self.facts.cut is None else self.facts.tiling.cluster_blocks

    @property
    def index_type(self) -> str:
        """The C type of positions in tensors."""
        is_wide = any(self.facts.tensors[t].last_offset > MAX_INT32 for t in self.pointers)
        return "long long" if is_wide else "int"

    @cached_property
    def uneven(self) -> Collection[str]:
        """Dimensions along which blocks have loops of different lengths."""
        return {d: None for found in self.live for d in found.dims()}.keys()

    @cached_property
    def mbarriers(self) -> tuple[Mbarrier, ...]:
        """Those of TMA: of each loop, then of the tiles before the first."""
        warps, found = self.options.num_warps, []
        served = {n: (loads, self.depths[n]) for n, loads in self.pipeline.loops.items()}
        inputs = {INPUTS: (self.pipeline.inputs, 1)} if self.pipeline.inputs else {}
        for section, (loads, stages) in (served | inputs).items():
            found.append(Mbarrier(Signal.FULL, section, stages, 1))
            if self.pipeline.roles.has_producer:
                found.append(Mbarrier(Signal.EMPTY, section, stages, warps))
            if any(n in self.row_reductions for n in loads):
                found.append(Mbarrier(Signal.MADE, section, stages, WARPS))
        return tuple(found)

    @cached_property
    def work_tiles(self) -> Sequence[Sequence[int]]:
        """Of each block of a persistent kernel the work tiles that it takes; empty: one in so many
        as there are blocks.
        """
        tiling, blocks = self.facts.tiling, self.pipeline.persistent_blocks
        is_table = blocks and self.uneven and tiling.grid_blocks <= _MOST_IN_TABLE
        return schedule_tiles(tiling, self.uneven, blocks) if is_table else ()

    @cached_property
    def in_tf32(self) -> frozenset[int]:
        """Loads whose tiles wgmma reads as TF32."""
        return frozenset(n for n in self.operands.tiles if self.facts.dtypes[n] == F32)

    @property
    def ring_bytes(self) -> int:
        """Shared memory of the stages of a loop, of the one that takes most."""
        sections = self.facts.block.sections
        sizes = {n: staged.tile.size_bytes for n, staged in self.staged.items()}
        sizes |= {n: tile.size_bytes for n, tile in self.private.items()}
        rings = (
            sum(sizes.get(n, 0) * depth for n in sections[number].nodes)
            for number, depth in self.depths.items()
        )
        return max(rings, default=0)


def plan_kernel(
    program: Program,
    typed: TypedBlock,
    tensors: Mapping[str, Tensor],
    options: LaunchConfig,
    in_base_two: Collection[str],
    order: LaunchOrder,
) -> KernelPlan:
    """The plan of one typed block graph; ScheduleError where there is none."""
    made = RowReductions(typed, {}, ())
    if options.producer_sums:
        made = with_row_reductions(program, typed, tensors)
    typed, known = made.typed, {**tensors, **made.tensors}
    cut = cluster_plan(program, typed, known)
    axes = options.reversed_axes
    facts = BlockAnalysis(program, typed, known, axes, in_base_two, cut, [*made.tensors])
    used = {t for n in facts.block.nodes if n.op in ACCESSES for t in n.access.tensors}
    pointers = tuple(t for t in tensors if t in used)
    _refuse_types(facts, pointers)
    depths = _depths(facts, options.num_stages)
    received = received_loads(facts)
    staged = without_stragglers(facts, staged_loads(facts, depths), options) | received
    layouts = decided_layouts(facts, options)
    private = private_tiles(facts, layouts.own, depths)
    staged |= staged_bytes(facts, depths, private)
    if not options.uses_tma:
        staged |= beside_codes(facts, staged, layouts.mmas.values())
    if options.thread_graphs:
        layouts = replace(layouts, own_shifts=own_shifts(facts, layouts, staged))
    rows = {row.load: row for row in made.sums}
    alone = {facts.section(n): None for n in private}
    pipeline = plan_pipeline(facts, layouts, staged, options, rows, alone)
    _refuse_row_reductions(facts, staged, rows, pipeline)
    operands = operand_sources(facts, layouts, options)
    _refuse_float8(facts, operands)
    _refuse_unrounded(facts, operands, pipeline)
    by_tma = {n: depths[n] for n in pipeline.loops}
    overlap = plan_overlap(facts, layouts, operands, by_tma, options.overlap)
    late = [n for found in overlap.values() for n in found.under_way]
    branching = branching_loops(facts, options, rows)
    chains = accumulation_chains(facts, layouts)
    sections = facts.block.sections
    phases = tuple(
        section_phases(facts, layouts, staged, section.nodes, chains)
        if options.barrier_schedule
        else _as_written(facts, section.nodes)
        for section in sections
    )
    return KernelPlan(
        facts=facts,
        options=options,
        order=order,
        pointers=pointers,
        depths=depths,
        live=tuple(unmasked_range(facts.tiling, n) for n in range(len(sections))),
        staged=staged,
        received=received,
        private=private,
        warp_tiles={} if by_tma else warp_tiles(facts, layouts, staged, private),
        row_reductions=rows,
        layouts=layouts,
        pipeline=pipeline,
        operands=operands,
        overlap=overlap,
        overwritten=overwritten_operands(facts, layouts, operands, branching, late),
        chains=chains,
        phases=phases,
        promotions=_promotions(facts, layouts, overlap, phases) if options.thread_graphs else {},
    )


def _promotions(
    facts: BlockAnalysis,
    layouts: Layouts,
    overlap: Mapping[int, LoopOverlap],
    phases: Sequence[Sequence[Sequence[int]]],
) -> dict[int, Promotion]:
    """Matmuls in slices, in loops where none is under way from one iteration to the next."""
    found = {}
    for section, nodes in enumerate(phases):
        is_plain = section in overlap and not overlap[section].under_way
        if is_plain and len(nodes) == 1 and nodes[0]:
            promotion = find_promotion(facts, layouts, nodes[0])
            if promotion is not None:
                found[nodes[0][0]] = promotion
    return found


def _depths(facts: BlockAnalysis, stages: Sequence[int]) -> dict[int, int]:
    """Stages of each section with a loop; no more than it has iterations."""
    depths: dict[int, int] = {}
    for number, section in enumerate(facts.block.sections):
        if section.loop is not None:
            asked = stages[len(depths)] if len(depths) < len(stages) else 1
            tile = facts.tiling.padded(section.loop, number)
            iterations = -(-facts.program.sizes[section.loop] // tile)
            depths[number] = max(1, min(asked, iterations))
    return depths


def _as_written(facts: BlockAnalysis, nodes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """All nodes in one phase, for comparison: each exchange has a barrier of its own."""
    stores = (n for n in nodes if facts.block.nodes[n].op in STORES)
    chosen = {*facts.emitted, *stores}
    return (tuple(n for n in nodes if n in chosen),)


def _refuse_row_reductions(
    facts: BlockAnalysis,
    staged: Mapping[int, Staged],
    rows: Mapping[int, RowReduction],
    pipeline: PipelinePlan,
) -> None:
    """Sums for the producer warps, where there is no group of these, or they cannot."""
    is_possible = (
        pipeline.roles.registers is not None
        and all(facts.section(n) in pipeline.loops for n in rows)
        and all(can_reduce_rows(row, staged) for row in rows.values())
        and facts.cut is None
    )
    if rows and not is_possible:
        raise ScheduleError(
            "sums 'producer'",
            where=facts.block.name,
            why="a group of warps has to fetch all tiles of the loop, and rows be contiguous",
        )


def _refuse_float8(facts: BlockAnalysis, operands: OperandSources) -> None:
    """Float8 anywhere but in tiles that wgmma reads: nothing here converts it."""
    for number, node in enumerate(facts.block.nodes):
        is_access = node.op in ACCESSES
        dtype = facts.tensors[node.access.tensor].dtype if is_access else facts.dtypes[number]
        is_tile = number in operands.tiles and not facts.reads_in_registers(number)
        if dtype == F8E4M3 and not is_tile:
            raise ScheduleError(
                f"%{number} {node.op} is of type {dtype}",
                where=facts.block.name,
                why="float8 goes from memory to wgmma, and nowhere else in CUDA",
                repair='use backend="triton"',
            )


def _refuse_unrounded(
    facts: BlockAnalysis, operands: OperandSources, pipeline: PipelinePlan
) -> None:
    """Float32 for wgmma that TMA does not load, which rounds it to TF32."""
    for number in operands.tiles:
        if facts.dtypes[number] == F32 and number not in pipeline.boxes:
            raise ScheduleError(
                "products 'wgmma' in TF32",
                where=facts.block.name,
                why=f"TMA does not load %{number}, and nothing else rounds it",
                repair="leave it out",
            )


def _refuse_types(facts: BlockAnalysis, pointers: Sequence[str]) -> None:
    types = {f"tensor {name}": facts.tensors[name].dtype for name in pointers}
    types |= {f"cast %{n}": dtype for n, dtype in enumerate(facts.dtypes)}
    for what, dtype in types.items():
        if dtype.name not in C_TYPES:
            raise ScheduleError(
                f"{what} is of type {dtype}",
                where=facts.block.name,
                why=f"the CUDA back end knows {', '.join(C_TYPES)}",
            )
