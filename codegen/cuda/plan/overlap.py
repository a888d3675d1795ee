"""MMA/softmax overlap: which matmuls of a loop run an iteration late.

It needs a loop fed by TMA with at least two stages, one wgmma whose result others read, and others
that take what was computed from it in registers into their accumulators. In a loop that only adds
matmuls of tiles up, those of an iteration may still run in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.plan.operand_sources import OperandSources
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.tiling.unmasked_tiles import always_iterates
from mirage_py.ugraph.ir.launch_choices import OverlapMode


@dataclass(frozen=True, slots=True)
class LoopOverlap:
    """``early`` is the matmul that others wait for (-1: none), ``late`` the accumulators whose
    matmuls run an iteration late, ``chained`` those of a loop that only adds matmuls of tiles up.
    """

    early: int = -1
    late: tuple[int, ...] = ()
    chained: tuple[int, ...] = ()

    @property
    def under_way(self) -> tuple[int, ...]:
        """Accumulators whose matmul is under way from one iteration to the next."""
        return (*self.late, *self.chained)


def plan_overlap(
    facts: BlockAnalysis,
    layouts: Layouts,
    sources: OperandSources,
    depths: Mapping[int, int],
    mode: OverlapMode | None,
) -> dict[int, LoopOverlap]:
    """The overlap of each section with a loop; ``depths`` are the stages of those fed by TMA."""
    found = {n: LoopOverlap() for n, s in enumerate(facts.block.sections) if s.loop is not None}
    for section, depth in depths.items():
        if mode is not None and depth > 1:
            found[section] = _late(facts, layouts, section, mode is OverlapMode.ACROSS) or (
                LoopOverlap(chained=_chained(facts, layouts, sources, section))
            )
    return found


def _late(
    facts: BlockAnalysis, layouts: Layouts, section: int, is_across: bool
) -> LoopOverlap | None:
    if not always_iterates(facts.tiling, section):
        return None
    nodes = facts.block.sections[section].nodes
    here = [n for n in nodes if n in layouts.mmas]
    early = [n for n in here if n not in facts.fused]
    late = [n for n in here if n in facts.fused]
    if len(early) != 1 or not late or not all(layouts.mmas[n].uses_wgmma for n in here):
        return None
    for product in late:
        plan = layouts.mmas[product]
        left = facts.root(plan.left)
        is_made = facts.section(left) == section and facts.block.nodes[left].op != "load"
        is_read = any(facts.fused[product] in facts.inputs(n) for n in nodes)
        if not is_made or is_read or not plan.dtype.is_half:
            return None
        if is_across and not _stays_in_floats(facts, layouts, left, late, plan.fragments.left):
            return None
    return LoopOverlap(early[0], tuple(facts.fused[n] for n in late))


def _stays_in_floats(
    facts: BlockAnalysis,
    layouts: Layouts,
    operand: int,
    products: Sequence[int],
    target: Layout,
) -> bool:
    """Whether an operand is computed in thread graphs where its products want it, and read by
    these alone.
    """
    if not facts.is_in_thread_graph(operand) or not facts.dtypes[operand].is_half:
        return False
    own = layouts.own[operand]
    readers = [n for n in range(len(facts.block.nodes)) if operand in facts.inputs(n)]
    are_late = all(n in products or facts.fused_by.get(n) in products for n in readers)
    return are_late and bool(own.registers) and own.has_same_threads(target)


def _chained(
    facts: BlockAnalysis, layouts: Layouts, sources: OperandSources, section: int
) -> tuple[int, ...]:
    nodes = facts.block.sections[section].nodes
    states = [facts.fused.get(n, -1) for n in nodes if n in layouts.mmas]
    for state in states:
        if state < 0 or facts.block.nodes[state].op != "accum_sum":
            return ()
        product = facts.fused_by[state]
        from_tiles = sources.is_tile(product, facts.root(layouts.mmas[product].left))
        is_read = any(state in facts.inputs(n) for n in nodes if n in facts.emitted)
        if not from_tiles or is_read:
            return ()
    return tuple(states)
