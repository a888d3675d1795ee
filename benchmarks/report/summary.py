"""A run in few numbers: geometric means, KernelBench's fast_p, losses, shares of the floor.

A cell is a row with a right kernel of ours. Ratios are a rival's time over ours: above 1 is a win.
A rival whose output is wrong is no rival.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

# KernelBench's fast_p: the share of cells that are right and more than p times faster.
FAST_P = (0.8, 1.0, 1.5, 2.0)
# Rivals that are the fastest of several: of all, and of the vendor's attention.
BEST = "best peer"
BEST_SDPA = "best sdpa"


def key_of(row: Row) -> str:
    """``gqa-b8``: which workload a row is of."""
    return f"{row['workload']}-b{row['batch']}"


def peers_of(row: Row) -> dict[str, float]:
    """Microseconds of each peer that ran and is right."""
    wrong = row.get("peers_wrong", [])
    return {n: us for n, us in row["peers_us"].items() if us is not None and n not in wrong}


def best_peer(row: Row) -> str | None:
    """The name of the fastest right peer."""
    found = peers_of(row)
    return min(found, key=lambda name: found[name]) if found else None


def ratio(row: Row, rival: str) -> float | None:
    """How many times faster ours is than a peer, or than the best; None where either is missing."""
    found, ours = peers_of(row), row["ours_us"]
    if rival == BEST_SDPA:
        found = {n: us for n, us in found.items() if n.startswith("sdpa_")}
    us = min(found.values(), default=None) if rival in (BEST, BEST_SDPA) else found.get(rival)
    return us / ours if us is not None and ours else None


def floor_share(row: Row) -> float | None:
    """The roofline bound over our time: 1 is at the floor."""
    floor, ours = row.get("floor_us"), row["ours_us"]
    return floor / ours if floor and ours else None


def geomean(values: Iterable[float]) -> float | None:
    """Geometric mean; None of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def summary(rows: Sequence[Row], failed: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The numbers of a run; ``failed`` rows count as cells that are not right."""
    # A run that measures nothing has rows without any time.
    rows = [row for row in rows if row["ours_us"] is not None or peers_of(row)]
    names = list(dict.fromkeys(n for row in rows for n in row["peers_us"]))
    return {
        "cells": len(rows) + len(failed or {}),
        "losses": _losses(rows),
        "geomean": {rival: _mean_over(rows, rival) for rival in (BEST, BEST_SDPA, *names)},
        "fast_p": {
            rival: {str(p): _fast(rows, rival, p, len(failed or {})) for p in FAST_P}
            for rival in ("eager", BEST)
        },
        "over_best_sdpa": {
            key_of(row): round(r, 3) for row in rows if (r := ratio(row, BEST_SDPA)) is not None
        },
        "floor_share": {
            key_of(row): round(share, 3)
            for row in rows
            if row.get("bound_by") == "memory" and (share := floor_share(row)) is not None
        },
        "launches": {
            key_of(row): round(row["ours_us"] / row["launch_us"], 2)
            for row in rows
            if row.get("bound_by") == "launch" and row["ours_us"] and row.get("launch_us")
        },
        "timed_by_calls": {key_of(row): names for row in rows if (names := _timed_by_calls(row))},
        "wrong_peers": {key_of(row): row["peers_wrong"] for row in rows if row.get("peers_wrong")},
    }


def _timed_by_calls(row: Row) -> list[str]:
    """Peers that no graph could capture, which pays them in no comparison."""
    known = row.get("peers", {})
    return [n for n, peer in known.items() if peer["us"] and "call by call" in peer.get("note", "")]


def _losses(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Cells slower than their best peer, or without a kernel of ours; the worst first."""
    found = []
    for row in rows:
        speed = ratio(row, BEST)
        if row["ours_us"] is None or (speed is not None and speed < 1.0):
            found.append({"key": key_of(row), "best_peer": best_peer(row), "ratio": speed})
    return sorted(found, key=lambda loss: loss["ratio"] or 0.0)


def _mean_over(rows: Sequence[Row], rival: str) -> dict[str, Any]:
    ratios = [r for row in rows if (r := ratio(row, rival)) is not None]
    mean = geomean(ratios)
    return {"cells": len(ratios), "ratio": None if mean is None else round(mean, 3)}


def _fast(rows: Sequence[Row], rival: str, p: float, failed: int) -> float | None:
    """Rows without the rival are left out, rows without a kernel of ours are not fast."""
    cells = [row for row in rows if rival == BEST or rival in peers_of(row)]
    total = len(cells) + failed
    fast = sum((ratio(row, rival) or 0.0) > p for row in cells)
    return round(fast / total, 3) if total else None
