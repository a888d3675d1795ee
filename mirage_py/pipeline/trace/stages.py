"""The stages of the pipeline, each made from its values."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mirage_py.errors import MirageError
from mirage_py.pipeline.trace.stage import Item, Stage
from mirage_py.result import SOURCES, Candidate, Result
from mirage_py.runtime.base.emission import emit_kernels, source_suffix
from mirage_py.search.enumerate.search import SearchResult
from mirage_py.search.rank.instance import Instance
from mirage_py.search.stabilize.safe import SafeFamilies
from mirage_py.search.tilings.kinds import describe
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.printing import format_program, format_ugraph
from mirage_py.ugraph.text.tiles_text import tiles_of


def program_stage(program: Program) -> Stage:
    """What was given."""
    return Stage("program", "The program", (Item(program.name, format_program(program)),))


def parts_stage(program: Program, parts: Sequence[Program], why: str) -> Stage:
    """A program that was cut; each part goes through the stages that follow."""
    items = [Item(part.name, format_program(part)) for part in parts]
    return Stage("parts", f"{program.name} in {len(parts)} parts: {why}", tuple(items))


def normal_stage(program: Program, normal: Program) -> Stage:
    """The form that is searched."""
    item = Item(program.name, format_program(normal), format_program(program))
    return Stage("normal", "Normal form: masks, shifts and shared reads", (item,))


def families_stage(normal: Program, found: SearchResult) -> Stage:
    """What the search found, beside a µGraph of the program without kernels."""
    before = format_ugraph(UGraph(normal, ()))
    items = [
        Item(_family(f.ugraph, n), format_ugraph(f.ugraph), before)
        for n, f in enumerate(found.families)
    ]
    reasons = tuple(map(str, found.reasons))
    return Stage("families", "Families found by the search, tiles open", tuple(items), reasons)


def safe_stage(safe: SafeFamilies, others: Sequence[UGraph]) -> Stage:
    """Families that overflow nowhere that the program does not: with their maxima, or dropped;
    ``others`` were found for rewritten programs.
    """
    pairs = zip(safe.ugraphs, safe.origins, strict=True)
    items = [
        Item(_family(u, n), format_ugraph(u), format_ugraph(origin))
        for n, (u, origin) in enumerate(pairs)
    ]
    known = {u.digest for u in safe.ugraphs}
    fresh = [u for u in others if u.digest not in known]
    items += [
        Item(f"{_family(u, len(items) + n)}, of a rewritten program", format_ugraph(u))
        for n, u in enumerate(fresh)
    ]
    items += [
        Item(describe(u), format_ugraph(u), format_ugraph(u), dropped=fault)
        for u, fault in zip(safe.unsafe, safe.faults, strict=True)
    ]
    return Stage("safe", "Numerically safe families: shifts, hoisted epilogues", tuple(items))


def plans_stage(ranked: Sequence[Instance]) -> Stage:
    """Plans of families that fit the target, best first by the cost model."""
    items = [
        Item(
            f"{i.estimate.time_us:.2f} us predicted, {i.plan.backend}, {i.name}: "
            f"{tiles_of(i.plan)}; waits for {i.estimate.bound}",
            format_ugraph(i.plan.ugraph),
            format_ugraph(i.family),
        )
        for i in ranked
    ]
    return Stage("plans", "Plans by the cost model: splits, tiles, launch", tuple(items))


def verified_stage(ranked: Sequence[Instance], verified: Collection[str]) -> Stage:
    """The families of the plans, with those that the field test finds to be something else."""
    families = {i.family.digest: i.family for i in ranked}
    items = []
    for number, (digest, family) in enumerate(families.items()):
        text = format_ugraph(family)
        fault = "" if digest in verified else "it was not found to be equal to the program"
        items.append(Item(_family(family, number), text, text, dropped=fault))
    return Stage("verified", "Families compared with the program over finite fields", tuple(items))


def kernels_stage(plan: Plan) -> Stage:
    """The source of the kernels of the plan that won."""
    try:
        items = [Item(f"{k.name}{source_suffix(k)}", k.source) for k in emit_kernels(plan)]
    except MirageError as error:
        items = [Item(describe(plan.ugraph), "", dropped=str(error))]
    return Stage("kernels", "Kernels of the best plan", tuple(items))


def result_stage(result: Result) -> Stage:
    """Every candidate with its time, or why it was dropped, beside the order of the ranking."""
    timed = sorted(result.candidates, key=lambda c: (not c.passed, c.timing.time_us))
    before = "\n".join(_line(c) for c in result.candidates)
    lines = [str(result.served), "", *(_line(c) for c in timed)]
    item = Item(f"{result.program.name} on {result.target}", "\n".join(lines), before)
    return Stage("result", "The result, and what else was tried", (item,))


def _line(candidate: Candidate) -> str:
    said = f"{candidate.timing.time_us:.2f} us {SOURCES[candidate.timing.source]}"
    words = f"{said}  {candidate.timing.name}: {candidate.kind}"
    tiles = tiles_of(candidate.plan) if candidate.plan else candidate.tiles
    reason = f"; dropped: {candidate.reason}" if candidate.reason else ""
    return f"{words}; {tiles}{reason}"


def _family(ugraph: UGraph, number: int) -> str:
    return f"family {number}: {describe(ugraph)}"
