"""A result read back from its cached document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirage_py.reasons import Code, read_reason, reason, why_original
from mirage_py.result import Candidate, Evidence, Result, SearchSummary, Timing
from mirage_py.runtime.eager.compiled import original_of
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program

Json = Mapping[str, Any]


def stored_result(program: Program, held: Artifact) -> Result | None:
    """The result that an artifact's report is of, marked as ``cached``; ``program`` is that of the
    question, which the artifact's own equals but for its name.

    Families are not in a report, nor are the plans of other candidates. None where the report is
    not one of ours.
    """
    try:
        return _result(program, held.plan, held.report)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _result(program: Program, plan: Plan | None, report: Json) -> Result:
    return Result(
        program=program,
        target=str(report["target"]),
        backend=str(report["backend"]),
        baseline=_timing(report["baseline"]),
        best=_timing(report["best"]),
        plan=plan,
        evidence=_evidence(report["verification"]) if plan is not None else None,
        search=_search(report["search"]),
        families=(),
        candidates=tuple(map(_candidate, report["candidates"])),
        notes=tuple(map(str, report["notes"])),
        cached=True,
        why_not=why_original(report),
        original=original_of(report),
        record=report.get("record", {}),
    )


def _timing(held: Json) -> Timing:
    return Timing(str(held["name"]), float(held["time_us"]), str(held["source"]))


def _evidence(held: Json) -> Evidence:
    bound, said = held["error_bound"], reason(Code.OTHER, held["bound_reason"])  # once: no code
    return Evidence(
        trials=int(held["trials"]),
        primes=tuple(map(int, held["primes"])),
        error_bound=None if bound is None else float(bound),
        bound_reason=read_reason(held["bound"]) if "bound" in held else said,
        proved=bool(held["proved"]),
        max_rel_error=float(held["max_rel_error"]),
        float_bound=float(held["float_bound"]),
        float_source=str(held["float_source"]),
        samples=int(held["samples"]),
        proof=held["proof"],
        functions=held["functions"],
        float_sets=tuple(held["float_sets"]),
        code=tuple(held.get("code", ())),
    )


def _search(held: Json) -> SearchSummary:
    # By the names of its document, but for two.
    same = {name: value for name, value in held.items() if name not in ("families", "rings")}
    same["reasons"] = tuple(held["reasons"])
    return SearchSummary(**same, kinds=held["families"], rings=tuple(held["rings"]))


def _candidate(held: Json) -> Candidate:
    time_us = held["time_us"]
    timing = Timing(
        str(held["name"]), float("inf") if time_us is None else float(time_us), str(held["source"])
    )
    return Candidate(
        None,
        timing,
        bool(held["passed"]),
        read_reason(held) if "code" in held else None,
        *(str(held[name]) for name in ("kind", "tiles", "backend")),
    )
