"""The headline of a result: what it is, how fast against what, and why to believe it."""

from __future__ import annotations

from collections.abc import Iterator

from mirage_py.formatting.evidence_format import format_reach
from mirage_py.result import SOURCES, Evidence, Result
from mirage_py.search.tilings.kinds import describe
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.tiles_text import tiles_of


def headline(result: Result) -> str:
    """One line: the program, the target and the speedup, measured or predicted."""
    said = SOURCES[result.best.source]
    return f"{result.program.name} on {result.target}: {result.speedup:.2f}x {said}"


def result_rows(result: Result) -> Iterator[tuple[str, str]]:
    """Label and text of each fact."""
    yield "best", str(result.best)
    yield "beside", str(result.baseline)
    yield "served by", str(result.served)
    if result.plan is not None:
        yield from plan_rows(result.plan)
    if result.evidence is not None:
        yield "verified", _verified(result.evidence)
        error = f"{result.evidence.max_rel_error:.2g} of {result.evidence.float_bound:.2g} allowed"
        yield "float error", f"{error} ({result.evidence.float_source})"
    search = result.search
    yield "search", f"{search.candidates} candidates, {search.ranked} plans, {search.seconds:.2f} s"
    for note in result.notes:
        yield "note", note


def plan_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    """What a plan is, and how its kernels are tiled and launched."""
    yield "kernels", f"{describe(plan.ugraph)} ({plan.backend})"
    yield "tiles", tiles_of(plan)


def _verified(evidence: Evidence) -> str:
    parts = [f"equal in {evidence.trials} trials over finite fields"]
    if evidence.samples:
        parts.append(f"in {evidence.samples} samples at full size")
    if evidence.proof is not None:
        parts.append(f"proved {format_reach(evidence.proof)}")
    else:
        parts.append("proved by the laws" if evidence.proved else "not proved by the laws")
    return "; ".join(parts)
