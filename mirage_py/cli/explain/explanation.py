"""The content of ``explain`` as plain values: of an artifact, a fresh search or a µGraph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mirage_py.axioms.proof.steps import read_proof
from mirage_py.errors import FormatError
from mirage_py.formatting.derivation_format import format_derivation, proof_summary, replayed
from mirage_py.formatting.diagnosis import (
    Diagnosis,
    diagnose,
    unfit_families,
    unsafe_families,
    unverified_families,
)
from mirage_py.formatting.evidence_format import (
    format_evidence,
    format_reach,
    format_roofline,
)
from mirage_py.formatting.funnel import Row, funnel, rings
from mirage_py.formatting.kernel_format import (
    UGraphDescription,
    count_text,
    describe_plan,
    describe_ugraph,
)
from mirage_py.result import SOURCES
from mirage_py.targets import target as target_named
from mirage_py.ugraph.text.tiles_text import tiles_of

if TYPE_CHECKING:
    from mirage_py.pipeline.selection.selection import Ranking
    from mirage_py.runtime.store.artifact import Artifact
    from mirage_py.ugraph.ir.ugraph import UGraph

_NEXT_BEST = 5
_SEARCH = ("candidates", "pruned", "families", "rings", "limits", "valid", "gap")
_PARTS = ("program", "target", "baseline", "best", "verification", "search", "candidates")


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan beside the best. ``time_us`` is ``source``: measured, or predicted by the model; an
    artifact knows it by ``number``.
    """

    name: str
    kind: str
    tiles: str
    time_us: float
    source: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Candidates dropped for reasons of one ``code``; ``reason`` is that of the first of them, of
    this kind and tiles.
    """

    reason: str
    count: int
    first: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Sections in the order in which they are read; what does not apply is empty."""

    subject: str
    headline: str
    served: Mapping[str, Any] = field(default_factory=dict)
    winner: UGraphDescription | None = None
    evidence: tuple[str, ...] = ()
    derivation: tuple[str, ...] = ()
    proof: Mapping[str, Any] | None = None
    seconds: float = 0.0
    funnel: tuple[Row, ...] = ()
    rings: tuple[tuple[str, str], ...] = ()
    roofline: tuple[str, ...] = ()
    best_by_kind: tuple[Tried, ...] = ()
    next_best: tuple[Tried, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The JSON document (schema 1)."""
        return {
            "schema": 1,
            **asdict(self),
            "rings": [{"ring": ring, "end": end} for ring, end in self.rings],
        }


def of_artifact(subject: str, artifact: Artifact) -> Explanation:
    """From the report that an artifact holds. Raises FormatError for one without a funnel."""
    report = artifact.report
    missing = [part for part in _PARTS if part not in report]
    missing += [f"search.{part}" for part in _SEARCH if part not in report.get("search", {})]
    if missing:
        raise FormatError(
            f"the report has no {', '.join(missing)}",
            where=f"{subject}/report.json",
            why="it was written by a version that did not keep it",
            repair="make the artifact again with `mirage-py superoptimize ... -o DIR`",
        )
    search = report["search"]
    target = target_named(report["target"])
    proof = report["verification"].get("proof")
    found_nothing = artifact.plan is None and not search.get("ranked")
    return Explanation(
        subject=subject,
        headline=_headline(report, original=artifact.plan is None),
        served=report.get("served", {}),
        winner=describe_plan(artifact.plan) if artifact.plan else None,
        evidence=format_evidence(report["verification"], _proof_sentence(artifact, proof)),
        derivation=format_derivation(proof) if proof else (),
        proof=proof,
        seconds=search["seconds"],
        funnel=funnel(search, report["candidates"]),
        rings=tuple(rings(search)),
        roofline=tuple(format_roofline(report, artifact.program, target)),
        next_best=tuple(_next_best(report, original=artifact.plan is None)),
        dropped=_dropped(report["candidates"]),
        diagnoses=(_diagnoses if found_nothing else _cuts)(search),
        notes=tuple(report.get("notes", ())),
    )


def _proof_sentence(artifact: Artifact, proof: Mapping[str, Any] | None) -> str:
    if proof is None or artifact.plan is None:
        if artifact.report["verification"].get("proved"):
            return (
                "The laws proved it; the derivation was not kept: `mirage-py verify` finds it anew."
            )
        return "There is no proof by the laws: the trials speak alone."
    start, fault = replayed(artifact.program, artifact.plan.ugraph, proof)
    if fault:
        return f"The stored derivation does not hold: {fault}."
    summary = proof_summary(read_proof(proof), start)
    return (
        f"The laws prove it for all values, and {format_reach(proof)}: {summary}; a checker of its "
        "own has just replayed this."
    )


def of_search(subject: str, ranking: Ranking) -> Explanation:
    """From a search that was run for this; nothing was compiled or measured."""
    best = ranking.instances[0] if ranking.instances else None
    best_us = best.estimate.time_us if best else float("inf")
    search = ranking.summary(best_us, best.estimate.bound if best else "").document()
    report = {
        "search": search,
        "best": {"time_us": best_us, "source": "model"} if best else None,
    }
    found = "nothing that runs" if best is None else f"{best_us:.2f} us predicted"
    name = f"{ranking.program.name} on {ranking.target.name}"
    return Explanation(
        subject=subject,
        headline=f"{name}: {found}, by a search without measurements",
        winner=describe_plan(best.plan) if best else None,
        seconds=search["seconds"],
        funnel=funnel(search, ()),
        rings=tuple(rings(search)),
        roofline=tuple(format_roofline(report, ranking.program, ranking.target)),
        best_by_kind=tuple(_best_by_kind(ranking)),
        diagnoses=_cuts(search) if best else diagnose(search, _lost(ranking)),
    )


def of_ugraph(subject: str, ugraph: UGraph) -> Explanation:
    """A µGraph alone: what its kernels do."""
    headline = f"{ugraph.program.name}: a µGraph without a report"
    note = "`mirage-py verify` checks a µGraph against its program"
    return Explanation(subject, headline, winner=describe_ugraph(ugraph), notes=(note,))


def _headline(report: Mapping[str, Any], *, original: bool) -> str:
    baseline, best = report["baseline"], report["best"]
    said = SOURCES[best["source"]]
    name = f"{report['program']['name']} on {report['target']}"
    against = f"{baseline['name']} ({baseline['time_us']:.2f} us)"
    if original:
        stays = f"the original program stays, {best['time_us']:.2f} us {said}"
        return f"{name}: {stays} ({baseline['name']})"
    return f"{name}: {best['time_us']:.2f} us {said}, {best['speedup']:.2f}x against {against}"


def _diagnoses(search: Mapping[str, Any]) -> tuple[Diagnosis, ...]:
    """Why a search found nothing; what blocks would have to hold is known to itself only."""
    families = sum(search.get("families", {}).values())
    lost = None
    if families and search.get("unsafe") == families:
        lost = unsafe_families(families)
    elif families and search.get("tested"):
        lost = unverified_families(search["tested"])
    elif families:
        lost = Diagnosis(
            f"{count_text(families, 'family was', 'families were')} found, none fits the target",
            "their blocks hold more at once than a block of the target has",
            "`mirage-py explain SPEC` says what they hold",
        )
    return diagnose(search, lost)


def _lost(ranking: Ranking) -> Diagnosis | None:
    """Why families that were found are no result."""
    families = [family.ugraph for family in ranking.found.families]
    if not families:
        return None
    if len(ranking.faults) == len(families):
        return unsafe_families(len(families), ranking.faults[0])
    if ranking.ranked:
        return unverified_families(len({i.family.digest for i in ranking.ranked}))
    return unfit_families(families, ranking.target)


def _cuts(search: Mapping[str, Any]) -> tuple[Diagnosis, ...]:
    """What kept a search that found something from going through all of its space."""
    return diagnose(search) if search.get("reasons") and search.get("hits") else ()


def _next_best(report: Mapping[str, Any], *, original: bool) -> Iterator[Tried]:
    numbered = enumerate(report["candidates"])
    timed = [(n, c) for n, c in numbered if c["passed"] and c["time_us"] is not None]
    timed.sort(key=lambda pair: pair[1]["time_us"])
    best = report["best"]
    winner = None if original else (best["name"], best["time_us"])
    shown = 0
    for number, c in timed:
        if winner == (c["name"], c["time_us"]):
            winner = None
        elif shown < _NEXT_BEST:
            shown += 1
            yield Tried(c["name"], c["kind"], c["tiles"], c["time_us"], c["source"], number)


def _best_by_kind(ranking: Ranking) -> Iterator[Tried]:
    seen: set[str] = set()
    for instance in ranking.instances:
        if instance.name not in seen:
            seen.add(instance.name)
            name = " + ".join(kernel.name for kernel in instance.plan.ugraph.kernels)
            tiles = tiles_of(instance.plan)
            yield Tried(name, instance.name, tiles, instance.estimate.time_us, "model")


def _dropped(candidates: Sequence[Mapping[str, Any]]) -> tuple[Dropped, ...]:
    """By reason, the most frequent first."""
    by_code: dict[str, list[Mapping[str, Any]]] = {}
    for candidate in candidates:
        if not candidate["passed"]:
            by_code.setdefault(candidate.get("code", ""), []).append(candidate)
    found = []
    for code, own in by_code.items():
        first = f"{own[0]['kind']}; {own[0]['tiles']}".strip("; ")
        sentence = own[0]["reason"].strip().partition("\n")[0] or "no reason is known"
        found.append(Dropped(sentence, len(own), first, code))
    return tuple(sorted(found, key=lambda d: -d.count))
