"""The launch option ``layouts``: by rule, or naively, for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.blocked import blocked
from mirage_py.codegen.cuda.layout.fragments import spread_sums
from mirage_py.codegen.cuda.layout.layout_choice import Layouts, choose_layouts
from mirage_py.codegen.cuda.text.layout import Layout, bits_of
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.operators import ELEMENTWISE, REDUCE, STATE, operator


def decided_layouts(facts: BlockAnalysis, options: LaunchConfig) -> Layouts:
    """A layout for every value that has registers, as the option asks.

    ``naive`` gives every tile the layout that suits its own shape, whatever its neighbours have.
    """
    ruled = choose_layouts(facts, options)
    if options.chosen_layouts:
        return ruled
    return with_free(facts, ruled, _naive(facts, ruled, options))


def _naive(facts: BlockAnalysis, ruled: Layouts, options: LaunchConfig) -> dict[int, Layout]:
    warp_bits = (options.num_warps - 1).bit_length()
    return {n: blocked(bits_of(facts.live(n), facts.extents(n)), 1, warp_bits) for n in ruled.own}


def with_free(facts: BlockAnalysis, ruled: Layouts, chosen: Mapping[int, Layout]) -> Layouts:
    """The rule's layouts with others for what is free, and for what follows from it."""
    own, parts, loops = dict(ruled.own), dict(ruled.parts), dict(ruled.loops)
    for n in facts.emitted:
        source = deciding_operand(facts, n)
        if n not in own:
            continue
        if is_free(facts, n):
            own[n] = chosen.get(n, own[n])
        elif source is not None and source in own:
            own[n] = after(facts, n, own[source])
            if n in facts.deferred_by:
                total = facts.block.nodes[facts.deferred_by[n]]
                parts[n] = own[source].summed_in_threads(total.reduced)
            if n in loops:
                loops[n] = own[source]
    return replace(ruled, own=own, parts=parts, loops=loops)


def is_free(facts: BlockAnalysis, number: int) -> bool:
    """Whether a value may have any layout: loads, and what is elementwise."""
    op = facts.block.nodes[number].op
    return op == "load" or operator(op).kind == ELEMENTWISE


def deciding_operand(facts: BlockAnalysis, number: int) -> int | None:
    """The operand whose layout decides that of a reduction or an accumulator."""
    kind = operator(facts.block.nodes[number].op).kind
    inputs = facts.inputs(number)
    decides = kind in (REDUCE, STATE) and number not in facts.fused_by and inputs
    return inputs[0] if decides else None


def after(facts: BlockAnalysis, number: int, source: Layout) -> Layout:
    """The layout of a reduction or an accumulator whose operand has this one."""
    node = facts.block.nodes[number]
    if number in facts.deferred_by:
        total = facts.block.nodes[facts.deferred_by[number]]
        return spread_sums(source.summed_in_threads(total.reduced), facts.live(number))
    return source.without(node.reduced) if operator(node.op).kind == REDUCE else source
