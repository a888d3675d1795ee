"""Rows as a short table, losses in bold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
PEERS = ("eager", "max_autotune", "max_autotune_freezing")


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
    """Microseconds of each, and ours against the best peer."""
    lines = [
        "| model | batch | eager | max-autotune | + freezing | ours | against the best | error |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    ratios = []
    for row in rows:
        if "failure" in row:
            reached = ", ".join(f"{n} {s} s" for n, s in row.get("seconds", {}).items())
            words = "; ".join(filter(None, (row["failure"], reached)))
            lines.append(f"| {row['model']} | {row['batch']} | {words} | | | | | |")
            continue
        times = row["times_us"]
        best = min(times[p] for p in PEERS)
        ratio = best / times["ours"]
        ratios.append(ratio)
        shown = f"{ratio:.2f}x" if ratio >= 1 else f"**{ratio:.2f}x**"
        cells = " | ".join(f"{times[p]:.0f}" for p in (*PEERS, "ours"))
        lines.append(
            f"| {row['model']} | {row['batch']} | {cells} | {shown} | {row['error']:.1e} |"
        )
    return "\n".join([*lines, "", f"geometric mean {_mean(ratios):.2f}x"])


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")
