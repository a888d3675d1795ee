"""Formatting of a region's result for the log: what was measured, and what stopped it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

# Of the reasons why plans were dropped, so many are said, and so much of each.
_REASONS, _LENGTH = 2, 100
# Where a file lies says nothing to whoever reads the log, and is longer than the reason.
_FOLDERS = re.compile(r"(?<!\w)(?:/[\w.+@=-]+)+/(?=[\w.+@=-])")


def format_measured(report: Mapping[str, Any]) -> str:
    """The best of ours beside the fastest of what there was, how many plans were timed, why others
    were not; ``report`` is the document of a result (schema 1).
    """
    try:
        return _words(report)
    except (KeyError, TypeError, ValueError, AttributeError):
        return "its report is not one of ours"


def _words(report: Mapping[str, Any]) -> str:
    candidates = report["candidates"]
    timed = [c for c in candidates if c["passed"] and c["time_us"] is not None]
    best = min((float(c["time_us"]) for c in timed), default=None)
    ours = "none of ours" if best is None else f"ours {best:.1f} us"
    baseline = report["baseline"]
    both = f"{ours}, {baseline['name']} {float(baseline['time_us']):.1f} us"
    if baseline["source"] != "measured":
        return f"{both} by the cost model"
    dropped = [c for c in candidates if not c["passed"]]
    first = {c.get("code", ""): _short(c["reason"]) for c in reversed(dropped)}
    counts = Counter(c.get("code", "") for c in dropped).most_common(_REASONS)
    reasons = [f"{count} x {first[code]}" for code, count in counts]
    return "; ".join(
        [both, f"{len(timed)} of {len(candidates)} plans timed", *reasons, *report["notes"]]
    )


def _short(reason: object) -> str:
    return _FOLDERS.sub("", str(reason))[:_LENGTH]
