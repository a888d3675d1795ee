"""The rows of a result file for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from benchmarks.report.summary import BEST, best_peer, floor_share, peers_of, ratio

_BEFORE = ("workload", "batch", "ours_us", "backend", "triton_us", "cuda_us", "result", "result_us")
_AFTER = (
    "floor_us",
    "bound_by",
    "launch_us",
    "max_rel_error",
    "eager_rel_error",
    "search_s",
    "verify_s",
    "compile_s",
    "tune_s",
    "candidates",
    "timed",
    "kind",
)


def csv_text(document: Mapping[str, Any]) -> str:
    """One line a row; a column of microseconds for each peer that any row has."""
    rows = document["rows"]
    names = list(dict.fromkeys(n for row in rows for n in row["peers_us"]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    derived = ("best_peer", "best_peer_us", "ratio_to_best_peer", "peers_wrong", "floor_share")
    writer.writerow([*_BEFORE, *(f"{n}_us" for n in names), *derived, *_AFTER])
    for row in rows:
        best = best_peer(row)
        values = [
            best,
            peers_of(row).get(best or ""),
            _rounded(ratio(row, BEST)),
            " ".join(row.get("peers_wrong", ())),
            _rounded(floor_share(row)),
        ]
        peers = [row["peers_us"].get(n) for n in names]
        writer.writerow([*map(row.get, _BEFORE), *peers, *values, *map(row.get, _AFTER)])
    return out.getvalue()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
