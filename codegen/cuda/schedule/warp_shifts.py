"""Per-warp running maxima.

A running maximum only shifts exponents, and any shift is valid. Where every warp has its own
positions of a loop and its own partial results of all rescaled sums, it needs only the maximum of
its own positions: no iteration waits for other warps. After the loop the largest of the warps'
maxima becomes the shift of all, and each partial result is rescaled once before they are combined.
The splits of FlashDecoding (Dao et al., 2023) do the same; here it happens within a block.
"""

from __future__ import annotations

from collections.abc import Container

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.schedule.operand_layouts import operand_layout
from mirage_py.ugraph.ir.node import STORES
from mirage_py.ugraph.operators import ELEMENTWISE, operator


def own_shifts(facts: BlockAnalysis, layouts: Layouts, staged: Container[int]) -> dict[int, int]:
    """The running maxima that warps keep for themselves, each with the maximum of an iteration."""
    found = {}
    for number, node in enumerate(facts.block.nodes):
        if node.op == "accum_max" and node.attr == "shift":
            chain = chain_of(facts, number)
            # A warp with nothing but padding has no maximum: its exponentials would be infinite.
            is_full = chain and not _has_padding(facts, chain[0])
            if is_full and _stays_in_warps(facts, layouts, staged, chain):
                found[number] = chain[0]
    return found


def _has_padding(facts: BlockAnalysis, top: int) -> bool:
    reduced = facts.block.nodes[top].reduced
    return any(facts.tiling.has_tail(d, facts.section(top)) for d in reduced)


def chain_of(facts: BlockAnalysis, peak: int) -> list[int]:
    """From the maximum of an iteration to the running one, through multiples; empty if others read
    it on the way.
    """
    chain = [peak]
    while True:
        number = facts.root(facts.block.nodes[chain[0]].args[0])
        node = facts.block.nodes[number]
        if facts.section(number) != facts.section(peak) or len(facts.users[number]) != 1:
            return []
        chain.insert(0, number)
        if node.op == "max":
            return chain
        if node.op != "mul" or not facts.is_literal(node.args[1]):
            return []


def _stays_in_warps(
    facts: BlockAnalysis, layouts: Layouts, staged: Container[int], chain: list[int]
) -> bool:
    """Whether nothing that depends on the maximum leaves its warp, but for parts of sums."""
    top, peak = chain[0], chain[-1]
    if top not in layouts.loops:
        return False
    bits = layouts.loops[top].warp_bits_of(facts.block.nodes[top].reduced)
    if not bits:
        return False
    kept = {n: bit for n, bit in enumerate(layouts.loops[top].warps) if n in bits and bit}
    section = facts.section(peak)
    depends = {*chain}
    for number in facts.block.sections[section].nodes:
        node = facts.block.nodes[number]
        if node.op in STORES:
            if facts.root(node.args[0]) in depends:
                return False
            continue
        if number in depends or number not in facts.emitted:
            continue
        read = [a for a in facts.inputs(number) if a in depends]
        if not read:
            continue
        depends.add(number)
        if any(_is_converted(facts, layouts, staged, number, a) for a in read):
            return False
        if number in facts.fused_by or number in facts.deferred_by:
            warps, own = layouts.parts[number].warps, facts.live(number)
            is_part = all(warps[n] == bit and bit[0] not in own for n, bit in kept.items())
        elif operator(node.op).kind == ELEMENTWISE:
            is_part = all(layouts.own[number].warps[n] == bit for n, bit in kept.items())
        else:
            return False
        if not is_part:
            return False
    return True


def _is_converted(
    facts: BlockAnalysis, layouts: Layouts, staged: Container[int], number: int, argument: int
) -> bool:
    """Whether a node reads a value in a layout that it does not have."""
    layout = operand_layout(facts, layouts, staged, number, argument)
    if number in layouts.parts and facts.block.nodes[argument].op == "accum_max":
        layout = layouts.parts[number].of_dims(facts.live(argument))
    return layout is not None and not layouts.own[argument].has_same_threads(layout)
