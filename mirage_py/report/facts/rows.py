"""Rows of a benchmark file: programs of the suite or whole models, each with its peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Any

from mirage_py.formatting.kernel_format import count_text
from mirage_py.report.facts.headline import Peer
from mirage_py.report.pictures.plots import Span

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a model, or a kind of operator outside of any. ``fate`` is ours or left."""

    what: str
    fate: str
    why: str


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One program or model. ``ratio`` is the time of its fastest peer over ours; ``details`` are
    names with their values, ``regions`` those of a model.
    """

    name: str
    sizes: str
    ours_us: float | None
    peers: tuple[Peer, ...]
    ratio: float | None
    details: tuple[tuple[str, str], ...] = ()
    regions: tuple[Region, ...] = ()
    spans: tuple[Span, ...] = ()
    kinds: tuple[tuple[str, float], ...] = field(default=())

    @property
    def best_peer(self) -> Peer | None:
        """The fastest of them."""
        return next((p for p in self.peers if p.time_us), None)


def shown_rows(document: Json) -> tuple[ShownRow, ...]:
    """The rows of a file of the suite or of whole models, the largest gain first."""
    rows = [_row(row) for row in document["rows"]]
    return tuple(sorted(rows, key=lambda r: -(r.ratio or 0.0)))


def geometric_mean(rows: Sequence[ShownRow]) -> float | None:
    """Of the rows that have a fastest peer."""
    ratios = [r.ratio for r in rows if r.ratio]
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else None


def _row(row: Json) -> ShownRow:
    ours = row.get("result_us") or row.get("ours_us")
    peers = sorted(_peers(row, ours), key=lambda p: p.time_us or float("inf"))
    best = next((p for p in peers if p.time_us), None)
    sizes = row.get("sizes") or {k: row[k] for k in ("batch", "layers", "context") if k in row}
    return ShownRow(
        name=f"{row['workload']}-b{row['batch']}" if "batch" in row else str(row["workload"]),
        sizes=", ".join(f"{k} = {v}" for k, v in sizes.items()),
        ours_us=ours,
        peers=tuple(peers),
        ratio=best.ratio if best else None,
        details=tuple(_details(row)),
        regions=tuple(map(region_of, row.get("log", ()))),
        spans=tuple(_spans(row)),
        kinds=tuple(sorted(row.get("kinds", {}).items(), key=lambda kind: kind[1])),
    )


def _peers(row: Json, ours: float | None) -> Iterator[Peer]:
    wrong = row.get("peers_wrong", ())
    for name, time_us in row.get("peers_us", {}).items():
        ratio = time_us / ours if time_us and ours and name not in wrong else None
        yield Peer(name, time_us, "measured", ratio, "wrong result" if name in wrong else "")


def _details(row: Json) -> Iterator[tuple[str, str]]:
    names = {
        "backend": "back end", "kind": "kernels", "digest": "plan digest",
        "max_rel_error": "relative error", "error_bound": "allowed",
        "eager_rel_error": "error of eager",
        "floor_us": "roofline bound, us", "bound_by": "bound by", "timed": "plans timed",
        "candidates": "candidates", "search_s": "search, s", "verify_s": "verification, s",
        "tune_s": "tuning, s", "regions": "regions", "regions_served": "regions served by ours",
        "first_start_s": "first start, s", "second_start_s": "second start, s",
    }  # fmt: skip
    for key, name in names.items():
        if key in row:
            value = row[key]
            yield name, f"{value:.3g}" if isinstance(value, float) else str(value)
    for found in row.get("resources", ()):
        taken = f"{found['registers']} registers, {found['spills']} spilled, "
        taken += f"{found['smem_bytes']} bytes of shared memory"
        yield f"resources of {found['name']}", taken
    for plan in row.get("plan", ()):
        if "library" in plan:
            yield f"kernel {plan['name']}", f"library: {plan['library']}"
        else:
            loops = ", ".join(map(str, plan.get("loops", ())))
            grid = ", ".join(f"{d} by {t}" for d, t in plan.get("grid", {}).items())
            yield (
                f"kernel {plan['name']}",
                f"grid {grid}; loops {loops or 'none'}; {plan['num_warps']} warps",
            )
    for reason, count in row.get("dropped", {}).items():
        yield (
            f"{count_text(int(count), 'candidate')} fell" if isinstance(count, int) else "fell",
            reason,
        )
    for note in (*row.get("notes", ()), *row.get("faults", ())):
        yield "note", str(note)
    errors = row.get("errors", {})
    if errors:
        yield "error against eager", ", ".join(f"{k} {v:.3g}" for k, v in errors.items())


def _spans(row: Json) -> Iterator[Span]:
    begin = 0.0
    for end, text in row.get("stages", ()):
        yield Span(str(text), begin, float(end))
        begin = float(end)


def region_of(line: str) -> Region:
    """A line of the backend's log: a region with what serves it, or operators that are left."""
    text = line.partition(": ")[2] or line
    what, _, why = text.partition("; ")
    ours = "served by" in why and "served by torch" not in why and "served by eager" not in why
    if not why:
        what, _, why = text.partition(" left to ")
        why = f"left to {why}" if why else ""
    return Region(what, "ours" if ours else "left", why)
