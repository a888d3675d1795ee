"""The launch option ``layouts``: by rule, by a solver, or naively, for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mirage_py.codegen.cuda.analysis.block_analysis import BlockFacts
from mirage_py.codegen.cuda.layout.blocked import blocked
from mirage_py.codegen.cuda.layout.layout_choice import Layouts, choose_layouts
from mirage_py.codegen.cuda.layout_solver.choice_problem import choose_by_elimination
from mirage_py.codegen.cuda.layout_solver.layout_problem import (
    after,
    deciding_operand,
    is_free,
    layout_problem,
)
from mirage_py.codegen.cuda.layout_solver.layout_solver import solve
from mirage_py.codegen.cuda.text.layout import Layout, bits_of
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.plan import LaunchOptions

LAYOUTS = "layouts"
MODES = ("rule", "solver", "naive")

# Entries of the largest table of elimination; problems that need larger ones go to CP-SAT.
_MAX_ENTRIES = 1 << 16
_SOLVER_SECONDS = 10.0


def decided_layouts(
    facts: BlockFacts, options: LaunchOptions, staged: Mapping[int, object]
) -> Layouts:
    """A layout for every value that has registers, as the option asks.

    ``solver`` is exact by elimination where that is cheap, which every kernel so far was, so that
    texts do not depend on whether OR-tools is there. ``naive`` gives every tile the layout that
    suits its own shape, whatever its neighbours have.
    """
    mode = options.flag(LAYOUTS, MODES[0])
    if mode not in MODES:
        raise ScheduleError(
            f"layouts '{mode}'", where=facts.block.name, repair=f"use {' or '.join(MODES)}"
        )
    ruled = choose_layouts(facts, options)
    if mode == "naive":
        return _with_free(facts, ruled, _naive(facts, ruled, options))
    if mode == "solver":
        found = layout_problem(facts, options, ruled, staged)
        choice = choose_by_elimination(found.problem, _MAX_ENTRIES)
        if choice is None:
            choice = solve(found.problem, _SOLVER_SECONDS)
        return _with_free(facts, ruled, found.chosen(choice))
    return ruled


def _naive(facts: BlockFacts, ruled: Layouts, options: LaunchOptions) -> dict[int, Layout]:
    warp_bits = (options.num_warps - 1).bit_length()
    return {n: blocked(bits_of(facts.live(n), facts.extents(n)), 1, warp_bits) for n in ruled.own}


def _with_free(facts: BlockFacts, ruled: Layouts, chosen: Mapping[int, Layout]) -> Layouts:
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
