"""Operand layouts: the layout in which a node reads each operand, and what crosses warps for it."""

from __future__ import annotations

from collections.abc import Container

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.ugraph.ir.node import REDUCING


def operand_layout(
    facts: BlockAnalysis, layouts: Layouts, staged: Container[int], number: int, argument: int
) -> Layout | None:
    """The layout in which a node reads an operand, one of its ``inputs``; None for a tile that a
    matmul reads from shared memory.
    """
    product = facts.fused_by.get(number, number)
    if product in layouts.mmas:
        plan = layouts.mmas[product]
        sides = {facts.root(plan.left): plan.fragments.left}
        sides[facts.root(plan.right)] = plan.fragments.right
        if argument in sides:
            return None if argument in staged else sides[argument]
    over = layouts.loops.get(number, layouts.own[number])
    return over.of_dims(facts.live(argument))


def crosses_warps(facts: BlockAnalysis, layouts: Layouts, number: int) -> bool:
    """Whether a node gives a sum or maximum of which each warp has a part at first."""
    node = facts.block.nodes[number]
    if number in layouts.mmas:
        kept = facts.live(number)
        return any(b is not None and b[0] not in kept for b in layouts.parts[number].warps)
    if node.op not in REDUCING or number not in layouts.loops:
        return False
    if number in layouts.own_shifts.values():
        return False
    return bool(layouts.loops[number].warp_bits_of(node.reduced))


def later_layouts(
    facts: BlockAnalysis, layouts: Layouts, staged: Container[int], number: int
) -> tuple[Layout, ...]:
    """Layouts besides its own in which later sections read a value."""
    found = [layouts.own[number]]
    for n in facts.emitted:
        if n not in layouts.own or facts.section(n) == facts.section(number):
            continue
        layout = (
            operand_layout(facts, layouts, staged, n, number) if number in facts.inputs(n) else None
        )
        if layout is not None and not any(f.has_same_threads(layout) for f in found):
            found.append(layout)
    return tuple(found[1:])
