"""Promotion of partial sums: a matmul of each iteration that is scaled and added to an accumulator,
in slices of its tile.

Scales of blocks of K make two sums of one: that of a block, by tensor cores, and that of the blocks
with their scales, by multiply-adds ("two-level accumulation" in DeepGEMM). Both in registers are
256 of a thread for 128 x 128 a warp group. So a slice of the tile is multiplied, awaited and added,
then the next one in the same registers, while other warp groups have the tensor cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.text.layout import Bit, Layout
from mirage_py.ugraph.ir.node import REDUCING

# Bits of the number of a register of a slice. On an H200 slices of 32 registers, two of them under
# way together, were slower by 6 % and more: narrower instructions read more of shared memory.
SLICE_BITS = 6


@dataclass(frozen=True, slots=True)
class Promotion:
    """``matmul`` in slices: the bits of a position that tell them apart, and the layout of each.
    ``group`` is all that reads it, accumulators at last.
    """

    matmul: int
    group: tuple[int, ...]
    slices: tuple[Bit, ...]
    layout: Layout


def find_promotion(
    facts: BlockAnalysis, layouts: Layouts, phase: Sequence[int]
) -> Promotion | None:
    """That of a phase with one matmul by warp groups, which nothing else reads."""
    matmuls = [n for n in phase if facts.fused_by.get(n, n) in layouts.mmas]
    if len(matmuls) != 1 or facts.block.sections[facts.section(matmuls[0])].loop is None:
        return None
    (matmul,) = matmuls
    own = layouts.own[matmul]
    is_whole = matmul not in facts.fused_by and layouts.parts.get(matmul, own) == own
    if not is_whole or not layouts.mmas[matmul].uses_wgmma or len(own.registers) < SLICE_BITS:
        return None
    group = _readers(facts, layouts, matmul, phase)
    if group is None:
        return None
    layout = Layout(own.registers[:SLICE_BITS], own.lanes, own.warps)
    return Promotion(matmul, group, own.registers[SLICE_BITS:], layout)


def _readers(
    facts: BlockAnalysis, layouts: Layouts, matmul: int, phase: Sequence[int]
) -> tuple[int, ...] | None:
    """What is computed from a matmul, if all of it ends in accumulators of this phase."""
    group: list[int] = []
    nodes = range(len(facts.block.nodes))
    for number in phase:
        if any(a == matmul or a in group for a in facts.inputs(number)):
            group.append(number)
    for number in group:
        is_sum = facts.block.nodes[number].op == "accum_sum" and number in facts.deferred_by
        if facts.block.nodes[number].op in REDUCING or number in facts.fused_by:
            return None
        if not is_sum and not facts.is_in_thread_graph(number):
            return None
        over = layouts.loops.get(number, layouts.own[number])
        readers = [n for n in nodes if n in facts.emitted and number in facts.inputs(n)]
        here = [n for n in readers if facts.section(n) == facts.section(matmul)]
        if over != layouts.own[matmul] or (
            here if is_sum else [n for n in readers if n not in group]
        ):
            return None
    ends = [n for n in group if facts.block.nodes[n].op == "accum_sum"]
    return tuple(group) if ends else None
