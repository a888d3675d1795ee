"""The table of whole models in docs/notes/whole_models.md, from ``h200-whole-models.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.whole_models.zoo import WHOLE_MODELS

Row = Mapping[str, Any]

# Of an H200's memory, by its data sheet.
SHEET_BYTES_A_US = 4.8e6

_HEAD = (
    "model",
    "batch",
    "layers",
    "eager",
    "compile",
    "max-autotune",
    "ours",
    "against max-autotune",
    "error: ours, max-autotune",
    "regions served",
    "first start",
    "second start",
)


def whole_models_table(document: Mapping[str, Any]) -> str:
    """Microseconds a step; losses in bold; rows that failed, and those not run, by name."""
    lines = [_line(_HEAD), _line(("---", *["---:"] * (len(_HEAD) - 1)))]
    counted = [row for row in document["rows"] if row["ours_us"] and not row["faults"]]
    lines += [_line(_cells(row)) for row in counted]
    for title, rows in (("Failed", document["failed"]), ("Not run", document["not_run"])):
        if rows:
            said = "; ".join(f"{key}: {_short(why)}" for key, why in rows.items())
            lines += ["", f"{title}: {said}."]
    return "\n".join(lines)


def row_line(row: Row) -> str:
    """A row in one line, for whoever waits."""
    times = {**row["peers_us"], "ours": row["ours_us"]}
    parts = [f"{name} {us:.0f} us" for name, us in times.items() if us is not None]
    parts += [f"error of {name} {error:.2g}" for name, error in row["errors"].items()]
    exact = row.get("float32_errors", {})
    parts += [f"{name} {error:.2g} off float32" for name, error in exact.items()]
    if row["ours_us"] and row.get("read_bytes"):
        share = row["read_bytes"] / row["ours_us"] / SHEET_BYTES_A_US
        parts.append(f"{100 * share:.0f} % of 4.8 TB/s")
    parts.append(f"{row['regions_served']} of {row['regions']} regions served")
    parts += [row["whole"]] if row["whole"] else []
    starts = ("first_start_s", "second_start_s")
    parts += [f"{n.removesuffix('_s')} {row[n]:.1f} s" for n in starts if row[n] is not None]
    return ", ".join([f"{row['workload']}-b{row['batch']}: {parts[0]}", *parts[1:], *row["faults"]])


def _cells(row: Row) -> tuple[str, ...]:
    peers = row["peers_us"]
    best = peers.get("compile_max_autotune")
    errors = row["errors"]
    return (
        WHOLE_MODELS[row["workload"]].words,
        str(row["batch"]),
        str(row["layers"]),
        _us(peers.get("eager")),
        _us(peers.get("compile")),
        _us(best),
        _us(row["ours_us"]),
        _times(best / row["ours_us"] if best else None),
        f"{_error(errors.get('ours'))}, {_error(errors.get('compile_max_autotune'))}",
        f"{row['regions_served']} of {row['regions']}",
        _seconds(row["first_start_s"]),
        _seconds(row["second_start_s"]),
    )


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _times(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}x" if value >= 1.0 else f"**{value:.2f}x**"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} s"


def _short(why: str) -> str:
    """The end, where a process says what went wrong, in one line."""
    return " ".join(why.replace("|", "/").split())[-200:]


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
