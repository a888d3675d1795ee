"""The report of a result: its facts collected, then put into the page."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from mirage_py import __version__
from mirage_py.errors import MirageError
from mirage_py.formatting.evidence_format import format_roofline
from mirage_py.formatting.funnel import Row, funnel, rings
from mirage_py.formatting.kernel_format import count_text, size_text
from mirage_py.report.facts.candidates import (
    Tried,
    best_of_kinds,
    candidates,
    why_not_one_kernel,
)
from mirage_py.report.facts.checks import Checks, checks
from mirage_py.report.facts.derivation import derivations
from mirage_py.report.facts.headline import Headline, Outcome, headline, losses
from mirage_py.report.facts.kernels import ShownUGraph, shown_ugraph
from mirage_py.report.facts.program_text import mathematics, pytorch
from mirage_py.report.facts.roofline import roofline
from mirage_py.report.facts.times import circumstances, spans
from mirage_py.report.page.highlight import highlighted
from mirage_py.report.page.page import render
from mirage_py.report.pictures.plots import Bar, bars_svg, timeline_svg
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.runtime.store.plan_text import plan_text
from mirage_py.targets import Target
from mirage_py.targets import target as target_named

SECTIONS = (
    ("start", "Start"),
    ("again", "Run it again"),
    ("peers", "Peers"),
    ("program", "Program"),
    ("ugraph", "µGraph and code"),
    ("checks", "Checks"),
    ("derivation", "Derivation"),
    ("roofline", "Roofline"),
    ("candidates", "Candidates"),
    ("funnel", "Search"),
    ("timeline", "Timeline"),
    ("machine", "Machine"),
)
_BARS = {Outcome.WON: "best", Outcome.SLOWER: "best", Outcome.KEPT: "kept", Outcome.UNKNOWN: "best"}


@dataclass(frozen=True, slots=True)
class Again:
    """What to paste to have it again: the command, the plan in one line, and how to load it."""

    command: str
    decorator: str
    source: str


def report_html(artifact: Artifact) -> str:
    """The report of an artifact as one HTML file. What an artifact does not say is said to be not
    recorded; a derivation is replayed now.
    """
    report, plan, program = artifact.report, artifact.plan, artifact.program
    record = report.get("record", {})
    found = headline(program.name, report, has_plan=plan is not None)
    target = _target(found.target)
    tried = candidates(report, has_plan=plan is not None)
    ugraph = shown_ugraph(plan, target, record.get("resources", ())) if plan else None
    search = report.get("search", {})
    floor_us = search.get("lower_bound_us")
    evidence = checks(artifact)
    proof = report.get("verification", {}).get("proof")
    return render(
        "report.html.j2",
        title=f"{program.name}: {found.times} {found.source}" if report else program.name,
        sections=SECTIONS,
        head=found,
        checks=evidence,
        answers=_answers(found, evidence, tried, ugraph, search.get("families", {})),
        again=_again(artifact, found),
        mathematics=mathematics(program),
        pytorch=highlighted(pytorch(program), "python", name="torch"),
        source=record.get("source", {}),
        ugraph=ugraph,
        derivations=derivations(proof if plan else None),
        roofline=roofline(program, target, found, tried, floor_us) if target else None,
        roofline_words=_roofline_words(artifact, target),
        tried=tried,
        kinds=best_of_kinds(tried),
        kinds_svg=_kinds_svg(tried),
        peers_svg=_peers_svg(found),
        funnel=_funnel(artifact),
        rings=tuple(rings(search)) if search else (),
        search=search,
        timeline=timeline_svg(spans(record)) if spans(record) else None,
        seconds_of=record.get("seconds_of", {}),
        circumstances=circumstances(report, __version__),
        size_text=size_text,
    )


def _target(name: str) -> Target | None:
    try:
        return target_named(name)
    except MirageError:
        return None


def _again(artifact: Artifact, found: Headline) -> Again:
    record = artifact.report.get("record", {})
    command = record.get("command", "")
    if not command:
        settings = record.get("request", {})
        seed = f" --seed {settings['seed']}" if settings.get("seed") else ""
        target = "" if found.target == "not recorded" else f" --target {found.target}"
        command = f"mirage-py superoptimize SPEC{target}{seed}"
    line = plan_text(artifact.program, artifact.plan) if artifact.plan else ""
    return Again(command, line, record.get("source", {}).get("text", ""))


def _answers(
    found: Headline,
    evidence: Checks,
    tried: tuple[Tried, ...],
    ugraph: ShownUGraph | None,
    families: dict[str, int],
) -> tuple[tuple[str, str, str, str], ...]:
    """Ten questions, each with its answer, the section that has more, and what that is called."""
    fell = sum(t.fate == "fell" for t in tried)
    times = {
        Outcome.WON: f"{found.times} {found.source}",
        Outcome.SLOWER: f"{found.times} {found.source}: slower than the baseline",
        Outcome.KEPT: "Not at all: the original program serves",
        Outcome.UNKNOWN: "Not recorded",
    }[found.outcome]
    against = found.baseline
    if found.baseline_us is not None:
        against += f", {found.baseline_us:.2f} us; ours {found.best_us:.2f} us"
    measured = {
        "measured": "Yes: timed on this GPU beside its peers, in one run",
        "predicted": "No: predicted by the cost model; no GPU was used",
    }.get(found.source, "Not recorded")
    gpu = found.target + (": the target of the prediction" if found.is_predicted else "")
    kernels = ugraph.kernels if ugraph else ()
    names = "; ".join(f"{k.name}: {k.description.title}" for k in kernels) or "None of ours runs"
    single = why_not_one_kernel(
        tried, len(kernels) + len(ugraph.libraries if ugraph else ()), families
    )
    limits = evidence.limits[0] if evidence.limits else "Nothing of ours is used."
    more = (
        f" And {count_text(len(evidence.limits) - 1, 'more point')}." if evidence.limits[1:] else ""
    )
    return (
        ("How much faster?", times, "peers", "All times"),
        ("Against what?", against, "peers", "All peers"),
        ("Is it measured?", measured, "timeline", "How it was made"),
        ("On which GPU?", gpu, "machine", "Machine and versions"),
        ("Is it proved?", evidence.proved, "checks", "What was checked"),
        ("What may still be wrong?", limits + more, "limits", "All of it"),
        ("Which kernel does what?", names, "ugraph", "µGraph and code"),
        ("Why not one kernel?" if len(kernels) != 1 else "Why one kernel?",
         single if ugraph else found.why or "No kernel serves.", "candidates", "All candidates"),
        ("What lost?", losses(found, len(tried) - fell - 1, fell), "candidates", "All candidates"),
        ("How do I run it again?", "One command, or one line of text", "again", "Copy it"),
    )  # fmt: skip


def _roofline_words(artifact: Artifact, target: Target | None) -> tuple[str, ...]:
    report = artifact.report
    if target is None or "search" not in report or "best" not in report:
        return ()
    return tuple(format_roofline(report, artifact.program, target))


def _funnel(artifact: Artifact) -> tuple[Row, ...]:
    search = artifact.report.get("search", {})
    if "candidates" not in search or "pruned" not in search:
        return ()
    return funnel(search, artifact.report.get("candidates", ()))


def _kinds_svg(tried: tuple[Tried, ...]) -> Markup | None:
    kinds = sorted(best_of_kinds(tried), key=lambda t: t.time_us or 0)[:16]
    bars = [
        Bar(t.kind, t.time_us, f"{t.time_us:.2f} us", "best" if t.fate == "best" else "other")
        for t in kinds
        if t.time_us
    ]
    return bars_svg(bars, "The fastest plan of each kind") if len(bars) > 1 else None


def _peers_svg(found: Headline) -> Markup | None:
    bars = []
    if found.best_us and found.outcome is not Outcome.KEPT:
        bars.append(
            Bar("mirage_py", found.best_us, f"{found.best_us:.2f} us", _BARS[found.outcome])
        )
    for peer in found.peers:
        if peer.time_us:
            lost = peer.ratio is not None and peer.ratio < 1.0
            text = f"{peer.time_us:.2f} us"
            bars.append(Bar(peer.name, peer.time_us, text, "lost" if lost else "peer"))
    return bars_svg(bars, "Times of ours and of the peers, in us") if bars else None
