"""The pipeline plan: loads by TMA and their place in a stage, warp roles, and whether blocks are
persistent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.analysis.row_reductions import RowReduction
from mirage_py.codegen.cuda.analysis.warp_roles import WarpRoles
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.layout.shared_tile import PIECE_BYTES
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.plan.tma_boxes import Box, tma_box
from mirage_py.codegen.cuda.schedule.concatenated_n import ConcatenatedMma, concatenated_mmas
from mirage_py.ugraph.ir.launch_choices import Arch
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# Elements of a tile that threads load beside TMA: a row or column of a block.
_MOST_STRAGGLING = 256


class Signal(Enum):
    """What an mbarrier tells: a stage has arrived, was read, or was reduced by producer warps."""

    FULL = "full"
    EMPTY = "empty"
    MADE = "made"


# In place of a section: tiles of straight-line code.
INPUTS = -1


@dataclass(frozen=True, slots=True)
class Mbarrier:
    """An mbarrier for each stage of a section's tiles, whose phase ends with so many arrivals."""

    signal: Signal
    section: int
    stages: int
    arrivals: int

    @property
    def stem(self) -> str:
        """How its name begins."""
        of = "sums" if self.signal is Signal.MADE else "tiles"
        return f"{'inputs' if self.section == INPUTS else of}_{self.signal.value}"


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """``loops``: the loads of each section with a loop all of whose tiles come by TMA; ``inputs``:
    those of the straight-line code before them, in a persistent kernel; ``boxes``: how TMA
    fetches each. ``slots``: bytes from stage to stage of a load's tile, and from the begin of a
    stage. ``concatenated``: matmuls that are one instruction, by each of them.
    ``persistent_blocks``: 0 where each block has one work tile.
    """

    roles: WarpRoles
    loops: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    inputs: tuple[int, ...] = ()
    boxes: Mapping[int, Box] = field(default_factory=dict)
    slots: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    concatenated: Mapping[int, ConcatenatedMma] = field(default_factory=dict)
    persistent_blocks: int = 0


def plan_pipeline(
    facts: BlockAnalysis,
    layouts: Layouts,
    staged: Mapping[int, Staged],
    options: LaunchConfig,
    computed: Collection[int],
    by_threads: Collection[int] = (),
) -> PipelinePlan:
    """Tiles by cp.async, or by TMA where the options ask for it. ``computed`` are the loads whose
    tiles producer warps compute, ``by_threads`` the sections whose threads copy for themselves.
    """
    loops: dict[int, tuple[int, ...]] = {}
    boxes: dict[int, Box] = {}
    if options.uses_tma and options.arch is Arch.SM_90A:
        boxes = {n: box for n, s in staged.items() if (box := tma_box(facts, s)) is not None}
        found = _tma_loops(facts, staged, boxes)
        loops = {n: loads for n, loads in found.items() if n not in by_threads}
    if not loops:
        return PipelinePlan(WarpRoles(options.num_warps))
    has_producer = _may_have_producer(facts, staged, options, len(loops))
    blocks = options.persistent_blocks
    is_less = 0 < blocks < facts.tiling.grid_blocks
    persistent = has_producer and is_less and not facts.block.cluster_dims and not computed
    # What straight-line code before the first loop reads.
    early = [n for s in facts.block.sections[: min(loops)] for n in s.nodes]
    inputs = tuple(n for n in early if n in boxes) if persistent else ()
    fetched = [n for loads in (*loops.values(), inputs) for n in loads if n not in computed]
    slots = {n: (s.tile.size_bytes, 0) for n, s in staged.items()}
    concatenated: dict[int, ConcatenatedMma] = {}
    for section in loops if options.concatenated_n else ():
        for mma in concatenated_mmas(facts, layouts, staged, section):
            sizes = [staged[n].tile.size_bytes for n in mma.loads]
            slots |= {n: (sum(sizes), sum(sizes[:i])) for i, n in enumerate(mma.loads)}
            concatenated |= dict.fromkeys(mma.matmuls, mma)
    return PipelinePlan(
        WarpRoles(options.num_warps, has_producer, bool(computed)),
        loops,
        inputs,
        {n: boxes[n] for n in fetched},
        slots,
        concatenated,
        blocks if persistent else 0,
    )


def without_stragglers(
    facts: BlockAnalysis, staged: Mapping[int, Staged], options: LaunchConfig
) -> dict[int, Staged]:
    """What is staged but for short loads that TMA cannot reach in loops where it reaches all that
    matmuls read, such as one scale of each row: threads load these straight into registers.
    """
    if not options.uses_tma or options.arch is not Arch.SM_90A:
        return dict(staged)
    found = dict(staged)
    for section in facts.block.sections:
        here = [n for n in section.nodes if n in staged] if section.loop is not None else []
        multiplied = [n for n in here if not facts.reads_in_registers(n)]
        missed = [n for n in here if tma_box(facts, staged[n]) is None]
        is_short = all(facts.elements(n) <= _MOST_STRAGGLING for n in missed)
        if multiplied and is_short and not any(n in multiplied for n in missed):
            for n in missed:
                del found[n]
    return found


def _tma_loops(
    facts: BlockAnalysis, staged: Mapping[int, Staged], boxes: Mapping[int, Box]
) -> dict[int, tuple[int, ...]]:
    found = {}
    for number, section in enumerate(facts.block.sections):
        loads = tuple(n for n in section.nodes if n in staged)
        if section.loop is not None and loads and all(n in boxes for n in loads):
            found[number] = loads
    return found


def _may_have_producer(
    facts: BlockAnalysis, staged: Mapping[int, Staged], options: LaunchConfig, served: int
) -> bool:
    """Whether a producer warp is asked for and can load all that loops read."""
    loops = [(n, s) for n, s in enumerate(facts.block.sections) if s.loop is not None]
    reading = [s for _, s in loops if any(n in staged for n in s.nodes)]
    # A producer warp cannot reach a cluster barrier before it has loaded everything.
    barriers = {facts.section(n): None for n in facts.sources}
    is_last = len(barriers) == 1 and min(barriers) > max(n for n, _ in loops)
    may_meet = is_last or not facts.block.cluster_dims
    return options.producer_warps and may_meet and len(reading) == served


def can_reduce_rows(row: RowReduction, staged: Mapping[int, Staged]) -> bool:
    """Whether rows lie in shared memory as producer warps read them, and results row by row."""
    source, made = staged.get(row.source), staged.get(row.load)
    if source is None or made is None:
        return False
    is_along = {b[0] for b in source.tile.columns} == set(row.nodes[row.total].reduced)
    wide = source.tile.row_bytes >= PIECE_BYTES
    return is_along and wide and made.tile.columns == source.tile.rows and not made.tile.rows
