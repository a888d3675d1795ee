"""The headline of a report: how fast, against what, measured or predicted, and what serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mirage_py.formatting.kernel_format import count_text

Json = Mapping[str, Any]

PREDICTED = "predicted"
_SOURCES = {"model": PREDICTED, "measured": "measured"}


class Outcome(StrEnum):
    """``won``: a kernel serves and is faster; ``slower``: it is none the less; ``kept``: the
    original program serves; ``unknown``: nothing was recorded.
    """

    WON = "won"
    SLOWER = "slower"
    KEPT = "kept"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Peer:
    """Something to be compared with. ``ratio`` is its time over ours: below 1 we lose to it."""

    name: str
    time_us: float | None
    source: str
    ratio: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """``times`` is the speedup in words, as in 2.24x; ``source`` says measured or predicted."""

    name: str
    target: str
    outcome: Outcome
    times: str
    source: str
    best_us: float | None
    best: str
    baseline: str
    baseline_us: float | None
    served: str
    why: str
    peers: tuple[Peer, ...]
    notes: tuple[str, ...]

    @property
    def is_predicted(self) -> bool:
        """Whether no clock has seen it."""
        return self.source == PREDICTED

    @property
    def lost_to(self) -> tuple[Peer, ...]:
        """Peers that are faster."""
        return tuple(p for p in self.peers if p.ratio is not None and p.ratio < 1.0)

    @property
    def sentence(self) -> str:
        """All of it in a line."""
        where = f"{self.name} on {self.target}"
        if self.outcome is Outcome.UNKNOWN:
            return f"{self.name}: kernels without a report of how they were found"
        if self.outcome is Outcome.KEPT:
            return f"{where}: no kernel of ours serves, {self.baseline} does"
        return f"{where}: {self.times} {self.source} against {self.baseline}"


def headline(name: str, report: Json, *, has_plan: bool) -> Headline:
    """From the report of an artifact, which may lack anything."""
    best, baseline = report.get("best") or {}, report.get("baseline") or {}
    served = report.get("served") or {}
    source = _SOURCES.get(best.get("source", ""), "not recorded")
    time_us, speedup = best.get("time_us"), best.get("speedup")
    outcome = Outcome.UNKNOWN
    if report:
        faster = speedup is not None and speedup >= 1.0
        outcome = (Outcome.WON if faster else Outcome.SLOWER) if has_plan else Outcome.KEPT
    return Headline(
        name=name,
        target=str(report.get("target", "not recorded")),
        outcome=outcome,
        times=f"{speedup:.2f}x" if speedup is not None else "not recorded",
        source=source,
        best_us=time_us,
        best=str(best.get("name", "")),
        baseline=str(baseline.get("name", "not recorded")),
        baseline_us=baseline.get("time_us"),
        served=str(served.get("by", "not recorded")),
        why=str(served.get("why", "")),
        peers=tuple(_peers(report, time_us)),
        notes=tuple(map(str, report.get("notes", ()))),
    )


def _peers(report: Json, best_us: float | None) -> Iterator[Peer]:
    measured: Sequence[Json] = report.get("record", {}).get("peers", ())
    known = measured or [b for b in [report.get("baseline")] if b]
    for peer in sorted(known, key=lambda p: p["time_us"] or float("inf")):
        time_us = peer["time_us"]
        ratio = time_us / best_us if time_us and best_us else None
        source = _SOURCES.get(peer.get("source", ""), str(peer.get("source", "")))
        yield Peer(str(peer["name"]), time_us, source, ratio, str(peer.get("reason", "")))


def losses(found: Headline, others: int, dropped: int) -> str:
    """What lost, and to what we lose, in a sentence."""
    faster = [f"{p.name} ({1 / p.ratio:.2f}x)" for p in found.lost_to if p.ratio]
    to = f"Faster than ours: {', '.join(faster)}." if faster else ""
    slower = (
        f"{count_text(others, 'other plan')} took longer" if others else "No other plan was timed"
    )
    fell = f", {dropped} fell" if dropped else ", none fell"
    return f"{to or 'No peer is faster.'} {slower}{fell}."
