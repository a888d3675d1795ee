"""The phases of a section: the nodes between two barriers, in order."""

from __future__ import annotations

from collections.abc import Container, Sequence

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.schedule.chained_accumulation import AccumulationChains
from mirage_py.codegen.cuda.schedule.operand_layouts import crosses_warps, operand_layout
from mirage_py.codegen.cuda.schedule.schedule import Item, plan_schedule
from mirage_py.ugraph.ir.node import STORES


def section_phases(
    facts: BlockAnalysis,
    layouts: Layouts,
    staged: Container[int],
    nodes: Sequence[int],
    chains: AccumulationChains,
) -> tuple[tuple[int, ...], ...]:
    """The emitted nodes and stores among ``nodes``, by phase. A barrier between two phases serves
    all sums that cross warps and all values that change their layout.

    Tiles that arrive in shared memory begin no phase: each is waited for where it is first read, so
    that there is work meanwhile.
    """
    order = [n for n in nodes if n in facts.emitted or facts.block.nodes[n].op in STORES]
    place = {n: number for number, n in enumerate(order)}
    begun = chains.first
    items = []
    for n in order:
        read = [*facts.inputs(n), *([begun[n]] if n in begun else [])]
        inputs = [a for a in dict.fromkeys(read) if a in place]
        through = [
            a for a in inputs
            if a != begun.get(n) and _exchanges(facts, layouts, staged, n, a)
        ]  # fmt: skip
        items.append(
            Item(
                f"%{n} {facts.block.nodes[n].op}",
                tuple(place[a] for a in inputs),
                tuple(place[a] for a in through),
                _registers(facts, layouts, n),
                is_copy=facts.block.nodes[n].op == "load",
            )
        )
    return tuple(tuple(order[i] for i in phase.items) for phase in plan_schedule(items))


def _exchanges(
    facts: BlockAnalysis,
    layouts: Layouts,
    staged: Container[int],
    number: int,
    argument: int,
) -> bool:
    if facts.block.nodes[argument].op == "load":
        return False
    if crosses_warps(facts, layouts, argument):
        return True
    if facts.block.nodes[number].op in STORES or argument not in layouts.own:
        return False
    layout = operand_layout(facts, layouts, staged, number, argument)
    return layout is not None and not layouts.own[argument].has_same_threads(layout)


def _registers(facts: BlockAnalysis, layouts: Layouts, number: int) -> int:
    """Registers of a node's value; an accumulator's live all the time, and count for nothing."""
    node = facts.block.nodes[number]
    if number not in layouts.own or node.op.startswith("accum"):
        return 0
    count = layouts.own[number].register_count
    return max(1, count // 2) if facts.dtypes[number].is_half else count
