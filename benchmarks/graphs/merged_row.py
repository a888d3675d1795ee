"""A row of what its candidates have measured, each beside eager PyTorch in a process of its own."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.graphs.measured_row import CANDIDATES, OURS, PEERS

Json = dict[str, Any]
# What a candidate of ours is where no substitution makes the model cheaper.
_AS_IT_WAS = {"ours_freezing": "max_autotune_freezing"}


def merged_row(model: str, batch: int, parts: Mapping[str, Json]) -> Json:
    """Times of all, and the fastest of ours that was measured against the best peer, where eager
    and all peers are there.

    ``eager`` is the median over the processes; ``eager_spread`` says how far they are apart.
    """
    eager = [part["times_us"]["eager"] for part in parts.values() if "times_us" in part]
    times: dict[str, float] = {}
    if eager:
        times["eager"] = statistics.median(eager)
    for name, part in parts.items():
        times |= {n: us for n, us in part.get("times_us", {}).items() if n == name}
    for ours in OURS:
        peer = _AS_IT_WAS.get(ours, "max_autotune")
        is_same = ours in parts and "failure" not in parts[ours] and ours not in times
        if is_same and peer in times:
            times[ours] = times[peer]
    row: Json = {"model": model, "batch": batch, "times_us": times}
    if eager:
        row["eager_spread"] = round(max(eager) / min(eager), 3)
    errors = [part["error"] for part in parts.values() if "error" in part]
    if errors:
        row["error"] = max(errors)
    missing = [name for name in CANDIDATES if name not in times]
    if missing:
        row["failure"] = "; ".join(f"{name}: {_why(parts.get(name, {}))}" for name in missing)
    found = [times[name] for name in OURS if name in times]
    if found and all(name in times for name in ("eager", *PEERS)):
        peers = [times[name] for name in ("eager", *PEERS)]
        row["against_best"] = round(min(peers) / min(found), 3)
        row["served_us"] = min(*peers[1:], *found)
    return row | {"candidates": dict(parts)}


def _why(part: Json) -> str:
    why = part.get("failure", "not begun" if not part else "as the peer")
    reached = ", ".join(f"{stage} {s} s" for stage, s in part.get("seconds", {}).items())
    return f"{why} ({reached})" if reached else str(why)
