"""Rows as a short table, losses in bold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
_COLUMNS = (
    "eager", "max_autotune", "max_autotune_freezing", "ours_branches", "ours", "ours_freezing",
)  # fmt: skip


def dry_table(rows: Sequence[Json]) -> str:
    """Modelled gain and what was verified."""
    lines = [
        "| model | batch | operators | modelled us | gain | parts verified | substitutions |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['model']} | {row['batch']} | {row['failure']} | | | | |")
            continue
        found = row["verified"]
        used = ", ".join(f"{s['times']} x {s['rule']}" for s in row["steps"]) or "none"
        lines.append(
            f"| {row['model']} | {row['batch']} | {row['operators']} -> {row['operators_after']} "
            f"| {row['before_us']:.0f} -> {row['after_us']:.0f} | {row['speedup']:.2f}x "
            f"| {found['tested']} of {found['parts']} | {used} |"
        )
    return "\n".join(
        [*lines, "", f"geometric mean {_mean([r['speedup'] for r in rows if 'speedup' in r]):.2f}x"]
    )


def measured_table(rows: Sequence[Json]) -> str:
    """Microseconds of each, the fastest of ours against the best peer, as ``ratio``, and what is
    missing.
    """
    lines = [
        (
            "| model | batch | eager | max-autotune | + freezing | ours in branches | by Inductor "
            "| + freezing | ratio | error |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    missing = []
    for row in rows:
        times = row["times_us"]
        cells = " | ".join(f"{times[n]:.0f}" if n in times else "-" for n in _COLUMNS)
        ratio = row.get("against_best")
        shown = "-" if ratio is None else f"{ratio:.2f}x" if ratio >= 1 else f"**{ratio:.2f}x**"
        error = f"{row['error']:.1e}" if "error" in row else "-"
        lines.append(f"| {row['model']} | {row['batch']} | {cells} | {shown} | {error} |")
        if "failure" in row:
            missing.append(f"{row['model']} at batch {row['batch']}: {row['failure']}")
    ratios = [row["against_best"] for row in rows if "against_best" in row]
    return "\n".join([*lines, "", f"geometric mean {_mean(ratios):.2f}x", *missing])


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")
