"""The report of a benchmark file: all rows beside their peers, losses first in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from mirage_py.formatting.kernel_format import count_text
from mirage_py.report.facts.rows import ShownRow, geometric_mean, region_of, shown_rows
from mirage_py.report.page.page import render
from mirage_py.report.pictures.plots import Bar, bars_svg, timeline_svg

Json = Mapping[str, Any]
SECTIONS = (
    ("start", "Start"),
    ("again", "Run it again"),
    ("peers", "Peers"),
    ("rows", "Rows"),
    ("losses", "Losses"),
    ("checks", "Checks"),
    ("machine", "Machine"),
)


def rows_html(document: Json, title: str, *, only: str = "") -> str:
    """Of a file of ``mirage-py bench``, or of the benchmark of whole models; ``only`` takes the
    row of that name, or those whose names begin so.
    """
    known = shown_rows(document)
    exact = tuple(r for r in known if r.name == only)
    rows = exact or tuple(r for r in known if r.name.startswith(only))
    lost = tuple(r for r in rows if r.ratio is not None and r.ratio < 1.0)
    mean = geometric_mean(rows)
    machine = document.get("machine", {})
    is_model = any(r.regions for r in rows)
    where = f" on {machine['gpu']}" if "gpu" in machine else ""
    return render(
        "rows.html.j2",
        title=f"{title}{where}: {mean:.2f}x measured" if mean else title,
        sections=SECTIONS,
        rows=rows,
        lost=lost,
        mean=mean,
        is_model=is_model,
        machine=machine,
        document=document,
        answers=_answers(rows, lost, mean, document, is_model=is_model),
        ratios=_ratios(rows),
        peers={r.name: _peers(r) for r in rows},
        timelines={r.name: timeline_svg(r.spans) for r in rows if r.spans},
    )


def model_html(lines: tuple[str, ...], title: str, settings: Mapping[str, str]) -> str:
    """Of a model that torch.compile has just cut: a region each line of the backend's log."""
    regions = tuple(map(region_of, lines))
    ours = sum(r.fate == "ours" for r in regions)
    return render(
        "model.html.j2",
        title=title,
        sections=(("start", "Start"), ("regions", "Regions"), ("machine", "Machine")),
        regions=regions,
        ours=ours,
        settings=settings,
    )


def _answers(
    rows: tuple[ShownRow, ...],
    lost: tuple[ShownRow, ...],
    mean: float | None,
    document: Json,
    *,
    is_model: bool,
) -> tuple[tuple[str, str, str], ...]:
    gpu = str(document.get("machine", {}).get("gpu", "not recorded"))
    peers = ", ".join(dict.fromkeys(p.name for r in rows for p in r.peers))
    names = ", ".join(f"{r.name} ({r.ratio:.2f}x)" for r in lost if r.ratio)
    much = "Not known: nothing was timed"
    if mean:
        much = f"{mean:.2f}x in the geometric mean of {count_text(len(rows), 'row')}"
    one = next((r for r in rows if r.ratio), None) if len(rows) == 1 else None
    if one is not None and one.ratio:
        much = f"{one.ratio:.2f}x against its fastest peer"
    day = document.get("date", "an unknown day")
    measured = f"Yes, on {day}" if mean else "No: nothing was timed"
    proof = (
        "Region by region, as any result; the whole was compared with eager"
        if is_model
        else "Every plan passed the field test, and float64 on random and adversarial inputs"
    )
    kernels = "Each row lists its regions" if is_model else "Each row lists its kernels"
    left = "Each row says what was left, and why"
    if is_model and len(rows) == 1:
        ours = sum(r.fate == "ours" for r in rows[0].regions)
        kernels = f"{count_text(ours, 'kind')} of regions run kernels of ours; each is listed"
        others = len(rows[0].regions) - ours
        left = f"{count_text(others, 'kind')} of regions and operators were left, each for a reason"
    return (
        ("How much faster?", much, "peers"),
        ("Against what?", f"The fastest of {peers}", "peers"),
        ("Is it measured?", measured, "machine"),
        ("On which GPU?", gpu, "machine"),
        ("Is it proved?", proof, "checks"),
        ("What may still be wrong?", "Other GPUs and sizes; rounding on other inputs", "checks"),
        ("Which kernel does what?", kernels, "rows"),
        ("Why not one kernel?", "Each row has the fastest plan of each kind", "rows")
        if not is_model
        else ("Why not all of it?", left, "rows"),
        ("What lost?", names or "No row is slower than its fastest peer", "losses"),
        ("How do I run it again?", "One command", "again"),
    )  # fmt: skip


def _ratios(rows: tuple[ShownRow, ...]) -> Markup | None:
    bars = [
        Bar(r.name, r.ratio, f"{r.ratio:.2f}x", "best" if r.ratio >= 1.0 else "lost")
        for r in rows
        if r.ratio
    ]
    return bars_svg(bars, "Speedup over the fastest peer") if len(bars) > 1 else None


def _peers(row: ShownRow) -> Markup | None:
    bars = [Bar("mirage_py", row.ours_us, f"{row.ours_us:.2f} us", "best")] if row.ours_us else []
    for peer in row.peers:
        if peer.time_us:
            lost = peer.ratio is not None and peer.ratio < 1.0
            kind = "lost" if lost else "peer"
            bars.append(Bar(peer.name, peer.time_us, f"{peer.time_us:.2f} us", kind))
    return bars_svg(bars, f"Times of {row.name}, in us")
