"""The table of a run as text, no wider than 100 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.report.summary import BEST, best_peer, floor_share, key_of, peers_of, ratio, summary

Row = Mapping[str, Any]

_COLUMNS = (
    ("workload", 22),
    ("ours us", 9),
    ("best us", 9),
    ("best peer", 10),
    ("x best", 6),
    ("x eager", 7),
    ("x auto", 6),
    ("floor", 5),
    ("error", 7),
    ("result", 10),
)
_SHORT = {
    "compile_max_autotune": "max_auto",
    "cublas_concat": "cublas_cat",
    "cublas_linear": "cublas_lin",
    "sdpa_efficient": "sdpa_eff",
    "sdpa_flash_gqa": "flash_gqa",
    "sdpa_cudnn_gqa": "cudnn_gqa",
    "flash_window": "flash_win",
}


def header() -> str:
    """The names of the columns."""
    return _line(name for name, _ in _COLUMNS)


def line(row: Row) -> str:
    """One row. ``x`` are a peer's time over ours; ``result`` is what a user would get."""
    best = best_peer(row)
    wrong = "!" if row.get("peers_wrong") else ""
    return _line(
        (
            key_of(row),
            _us(row["ours_us"]),
            _us(peers_of(row).get(best or "")),
            _short(best or "none") + wrong,
            _times(ratio(row, BEST)),
            _times(ratio(row, "eager")),
            _times(ratio(row, "compile_max_autotune")),
            _percent(floor_share(row)),
            "-" if row.get("max_rel_error") is None else f"{row['max_rel_error']:.1e}",
            _short(row.get("result") or "-"),
        )
    )


def table(document: Mapping[str, Any]) -> str:
    """Every row, what failed or was not run, and the summary, losses first."""
    rows, failed = document["rows"], document.get("failed", {})
    lines = [header(), *(line(row) for row in rows)]
    lines += [
        f"{key:22s} failed: {' '.join(reason.split())[:70]}" for key, reason in failed.items()
    ]
    not_run = document.get("not_run", {})
    if not_run:
        lines.append(f"not run: {', '.join(not_run)}")
    lines += ["", *summary_lines(rows, failed)]
    lines += [f"note: {note}" for note in document.get("notes", ())]
    return "\n".join(lines)


def summary_lines(rows: Sequence[Row], failed: Mapping[str, str]) -> Iterator[str]:
    """The numbers of a run in words."""
    found = summary(rows, failed)
    timed = [row for row in rows if row["ours_us"] is not None]
    if not timed:
        yield "nothing was measured"
        return
    losses = [f"{loss['key']} {_times(loss['ratio'])}" for loss in found["losses"]]
    yield f"losses to the best peer: {', '.join(losses) or 'none'}"
    for words, of_cells in (
        ("wrong and not counted", found["wrong_peers"]),
        ("not captured, launch cost included", found["timed_by_calls"]),
    ):
        for name in dict.fromkeys(n for names in of_cells.values() for n in names):
            cells = [key for key, names in of_cells.items() if name in names]
            yield f"{words}: {name} of {', '.join(cells)}"
    means = found["geomean"].items()
    yield "geometric mean over " + ", ".join(
        f"{_short(name)} {_times(of['ratio'])} ({of['cells']})" for name, of in means if of["cells"]
    )
    for rival, shares in found["fast_p"].items():
        parts = [f"p={p} {_percent(share)}" for p, share in shares.items()]
        yield f"fast_p over {rival}: {', '.join(parts)} of {found['cells']} cells"
    if found["over_best_sdpa"]:
        parts = [f"{key} {_times(r)}" for key, r in found["over_best_sdpa"].items()]
        yield f"over the best back end of attention: {', '.join(parts)}"
    floors = found["floor_share"]
    if floors:
        below = [f"{k} {_percent(s)}" for k, s in floors.items() if s < 0.8]
        yield f"bound by memory: {len(floors)} cells; below 80 % of the floor: " + (
            ", ".join(below) or "none"
        )
    above = [f"{key_of(r)} {_percent(s)}" for r in rows if (s := floor_share(r) or 0.0) > 1.05]
    if above:
        yield f"faster than the roofline allows, to be doubted: {', '.join(above)}"
    if found["launches"]:
        parts = [f"{key} {count:.2f}" for key, count in found["launches"].items()]
        yield f"bound by a launch, in launches: {', '.join(parts)}"


def _line(cells: Any) -> str:
    parts = []
    for (name, width), text in zip(_COLUMNS, cells, strict=True):
        left = name in ("workload", "best peer", "result")
        parts.append(text[:width].ljust(width) if left else text.rjust(width))
    return " ".join(parts).rstrip()


def _short(name: str) -> str:
    return _SHORT.get(name, name)


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
