"""The tables and the picture of docs/notes/search_time.md, from a result file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import marks
from benchmarks.search import search_published
from benchmarks.search.search_plot import Line, line_chart
from mirage_py.reasons import Code, read_reason

PAGE = "search_time.md"
PICTURE = "search_rmsnorm.svg"
_PLOTTED = "rmsnorm_matmul"
_COLORS = {
    "whole": "#0b62c4",
    "2 processes": "#4aa3ff",
    "without merging": "#2e8b57",
    "without classes": "#b3261e",
    "without classes, one kernel": "#e07b39",
}
_MIRAGE_COLORS = ("#59636e", "#8a8f98", "#111418")
_KINDS = {
    "one kernel": "one kernel",
    "two kernels": "two",
    "split": "split",
    "atomic": "atomic",
    "library": "library",
}

_BOUNDS = {
    Code.BOUND_ON_NODES: "nodes",
    Code.BOUND_ON_ROUNDS: "rounds",
    Code.OUT_OF_TIME: "time",
}

Document = Mapping[str, Any]


def write(document: Document, folder: Path) -> None:
    """Write the tables into the page and the picture beside it."""
    page = folder / PAGE
    page.write_text(filled(page.read_text(encoding="utf-8"), document), encoding="utf-8")
    (folder / PICTURE).write_text(picture(document), encoding="utf-8")


def filled(page: str, document: Document) -> str:
    """The page with each ``<!-- NAME -->`` .. ``<!-- /NAME -->`` filled in."""
    for name, text in sections(document).items():
        page = marks.filled(page, name, text)
    return page


def sections(document: Document) -> dict[str, str]:
    """The texts between the marks."""
    return {
        "machine": _machine(document),
        "programs": _programs(document["programs"]),
        "rings": _rings(document["programs"]),
        "ablation": _ablation(document["ablation"]),
        "published": _published(document["ablation"]),
        "built": _built(document["programs"]),
    }


def picture(document: Document) -> str:
    """Seconds against the number of operators, for the program that Mirage measured."""
    lines = []
    for variant, color in _COLORS.items():
        cells = [
            c
            for c in document["ablation"]
            if (c["program"], c["variant"]) == (_PLOTTED, variant)
            and c["status"] not in ("not run", "failed")
        ]
        if cells:
            points = [(c["max_operators"], max(c["wall_s"], 1e-3)) for c in cells]
            ends_open = cells[-1]["status"] != "finished"
            lines.append(Line(f"ours, {variant}", color, points, ends_open))
    for series, color in zip(search_published.MIRAGE, _MIRAGE_COLORS, strict=True):
        known = zip(search_published.OPERATORS, series.seconds, strict=True)
        points = [(x, 36_000.0 if y is None else y) for x, y in known]
        first = next((n for n, y in enumerate(series.seconds) if y is None), len(points) - 1)
        ends_open = None in series.seconds
        lines.append(Line(series.name, color, points[: first + 1], ends_open, dashed=True))
    return line_chart(
        "Search time of RMSNorm and a product", "operators of a kernel, at most", "seconds", lines
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _machine(document: Document) -> str:
    machine = document["machine"]
    runs = [row["runs"]["factored"] for row in document["programs"]]
    start_mib = min((r["start_mib"] for r in runs if "start_mib" in r), default=0)
    return (
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, other load "
        f"{machine['load']} at the start; commit {document['commit']}, {document['date']}; "
        f"at most {document['limit_s']:g} s a search, the fastest of {document['repeats']}; "
        f"{start_mib} MiB before a search begins; "
        f"`{document['command']}`"
    )


def _seconds(cell: Mapping[str, Any], key: str = "wall_s") -> str:
    """``0.24``, or ``> 60`` where the search did not end by itself."""
    if cell["status"] in ("not run", "failed"):
        return {"not run": "–", "failed": "failed"}[cell["status"]]
    value = cell.get(key, cell["wall_s"])
    shown = f"{value:.2f}" if value < 10 else f"{value:,.0f}"
    return shown if cell["status"] == "finished" else f"> {shown}"


def _count(cell: Mapping[str, Any], key: str) -> str:
    return f"{cell[key]:,}" if key in cell else "–"


def _programs(programs: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for row in programs:
        run = row["runs"]["factored"]
        kinds = [str(run.get("kinds", {}).get(kind, "")) for kind in _KINDS]
        rows.append(
            [
                _named(row, run),
                f"{', '.join(row['reduced'])} of {len(row['dims'])}",
                *kinds,
                *(_count(run, key) for key in ("candidates", "tensors")),
                f"{_count(run, 'classes')} / {_count(run, 'rows')}",
                _seconds(run, "cpu_s"),
                _seconds(run),
                _count(run, "peak_mib"),
            ]
        )
    head = ["program", "reduced dims", *_KINDS.values(), "candidates", "tensors"]
    return _table([*head, "classes / rows", "CPU s", "s", "peak MiB"], rows)


def _named(row: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    parts = run.get("parts", 1)
    return row["program"] if parts == 1 else f"{row['program']}, in {parts} parts"


def _gone_through(run: Mapping[str, Any]) -> str:
    """``yes``, or the bound that was hit, in a word."""
    if "exhausted" not in run:
        return {"killed": "no: time", "failed": "failed"}[run["status"]]
    if run["exhausted"]:
        return "yes"
    words = []
    for reason in map(read_reason, run["reasons"]):
        if reason.code is Code.POOL_OUTGREW:
            words.append(f"no: {reason.data[0]} tensors")
        elif reason.code in _BOUNDS:
            words.append(f"no: {_BOUNDS[reason.code]}")
    return ", ".join(dict.fromkeys(words)) or "no"


def _rings(programs: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for row in programs:
        runs = row["runs"]
        one, two = runs["both rings"], runs["both rings, 2 processes"]
        rows.append(
            [
                row["program"],
                *(
                    cell
                    for ring in ("factored", "expanded")
                    for cell in (_gone_through(runs[ring]), _count(runs[ring], "families"))
                ),
                _seconds(runs["expanded"]),
                _seconds(one),
                _seconds(two),
            ]
        )
    head = ["program", "factored ring", "families", "expanded ring", "families", "s"]
    return _table([*head, "both rings s", "2 processes s"], rows)


def _ablation(cells: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for program in dict.fromkeys(c["program"] for c in cells):
        own = [c for c in cells if c["program"] == program]
        bounds = list(dict.fromkeys(c["max_operators"] for c in own))
        rows = []
        for variant in dict.fromkeys(c["variant"] for c in own):
            found = {c["max_operators"]: c for c in own if c["variant"] == variant}
            at = [found.get(n, {"status": "not run"}) for n in bounds]
            rows.append([f"{variant}, s", *map(_seconds, at)])
            rows.append(["candidates", *(_count(c, "candidates") for c in at)])
            rows.append(["families", *(_count(c, "families") for c in at)])
        parts.append(f"`{program}`\n\n{_table(['operators', *map(str, bounds)], rows)}")
    return "\n\n".join(parts)


def _published(cells: Sequence[Mapping[str, Any]]) -> str:
    bounds = search_published.OPERATORS
    rows = [
        [f"{series.name}, s", *("> 10 h" if y is None else f"{y:,g}" for y in series.seconds)]
        for series in search_published.MIRAGE
    ]
    for variant in _COLORS:
        own = {
            c["max_operators"]: c
            for c in cells
            if (c["program"], c["variant"]) == (_PLOTTED, variant)
        }
        if own:
            ended = [(n, c) for n, c in own.items() if c["status"] in ("unfinished", "killed")]
            behind = f"{_seconds(ended[0][1])} at {ended[0][0]}" if ended else "–"
            shown = [_seconds(own[n]) if n in own else "–" for n in bounds]
            rows.append([f"ours, {variant}, s", *(behind if s == "–" else s for s in shown)])
    return _table(["block operators, at most", *map(str, bounds)], rows)


def _built(programs: Sequence[Mapping[str, Any]]) -> str:
    by_name = {row["program"]: row["runs"] for row in programs}
    rows = []
    for built in search_published.MIRAGE_BUILT:
        mirage = f"{built.seconds}" if built.finished else f"> {built.seconds}"
        ours = by_name.get(built.program)
        shown = ["–", "–", "–"]
        if ours is not None:
            both = ours["both rings, 2 processes"]
            shown = [_seconds(ours["factored"]), _seconds(both), _count(both, "families")]
        rows.append([built.program, mirage, str(built.found), *shown])
    head = ["program", "Mirage s", "its valid µGraphs"]
    return _table([*head, "ours, factored s", "both rings, 2 processes s", "families"], rows)
