"""Counts of a dry run: programs by how they are served, and reasons by the programs they cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.report.summary import geomean
from mirage_py.reasons import Server

Row = Mapping[str, Any]

# Names of inputs, and the lines of the user's that a message quotes.
_QUOTED = re.compile(r" '\w+'| in `.*`?")

# The two ways through us, by their names in rows of a GPU.
WAYS = ("decorator", "backend")
KINDS = ("whole", "in parts", "eager")


def served_as(row: Row) -> str:
    """How the decorator serves a program: ``whole`` by one kernel graph of ours, ``in parts``
    between operators of torch, or eager.

    Where nothing was searched, what is taken counts as served.
    """
    by = row["decorator"]["served_by"]
    if by in (Server.OURS, None):
        return "whole"
    return "in parts" if by == Server.IN_PARTS else "eager"


def is_right(row: Row) -> bool:
    """Whether both ways give what eager gives and leave what it leaves."""
    return not row["decorator"]["fault"] and not row["compile"]["fault"]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts; reasons with the number of programs that each keeps from one kernel graph of ours,
    and operators outside regions with the number of programs that have them.
    """
    kinds = Counter(served_as(row) for row in rows)
    return {
        "programs": len(rows),
        "right": sum(is_right(row) for row in rows),
        **{kind.replace(" ", "_"): kinds[kind] for kind in KINDS},
        "taken_by_the_decorator": sum(row["decorator"]["taken"] == "whole" for row in rows),
        "operators": sum(row["compile"]["operators"] for row in rows),
        "operators_in_regions": sum(row["compile"]["in_regions"] for row in rows),
        "search_cpu_s": round(
            sum(row[way]["search_cpu_s"] for row in rows for way in ("decorator", "compile")), 1
        ),
        "reasons": _ordered(_reason(row) for row in rows if served_as(row) != "whole"),
        "left": _ordered(
            name for row in rows if served_as(row) != "whole" for name in dict.fromkeys(_left(row))
        ),
    }


def measured_summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Of rows with times: how often ours is the fastest, and by how much; the faster of both ways,
    and each way by itself.
    """
    against = [row["against_best"] for row in rows if row["against_best"]]
    longest = [max(row["first_call_s"].get(way, 0.0) for way in WAYS) for row in rows]
    return {
        "programs": len(rows),
        "timed": len(against),
        "right": sum(not set(row["faults"]) & set(WAYS) for row in rows),
        "faster": sum(times >= 1.0 for times in against),
        "below_0_98": sum(times < 0.98 for times in against),
        "geomean": round(mean, 3) if (mean := geomean(against)) is not None else None,
        "worst": min(against, default=None),
        "longest_first_call_s": max(longest, default=None),
        "by_way": {way: _of_way(rows, way) for way in WAYS},
    }


def _of_way(rows: Sequence[Row], way: str) -> dict[str, Any]:
    """One way beside the best peer."""
    against = []
    for row in rows:
        times = row["times_us"]
        peers = [us for name, us in times.items() if name not in WAYS]
        if way in times and peers:
            against.append(min(peers) / times[way])
    mean = geomean(against)
    return {
        "timed": len(against),
        "geomean": round(mean, 3) if mean is not None else None,
        "below_0_98": sum(times < 0.98 for times in against),
    }


def joined(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """One file of two runs: rows of the later one, and those of the earlier one that it lacks, each
    with the commit that it was measured at. What was not run or failed later keeps its row.
    """
    rows: dict[str, Row] = {}
    for document in (earlier, later):
        own = {r["program"]: {"commit": document["commit"], **r} for r in document["rows"]}
        rows = {name: rows[name] for name in rows if name not in own} | own
    kept = list(rows.values())
    return {**later, "rows": kept, "summary": measured_summary(kept)}


def _reason(row: Row) -> str:
    """The code, and what happened without the details in parentheses."""
    held = row["decorator"]
    first = held["why"].partition(" (")[0].splitlines()[0]
    return f"{held['code']}: {_QUOTED.sub('', first)[:100]}"


def _left(row: Row) -> Iterable[str]:
    for held in row["compile"]["left"]:
        yield f"{held['operator']}: {held['code']}"


def _ordered(names: Iterable[str]) -> dict[str, int]:
    found = Counter(names)
    return {name: found[name] for name in sorted(found, key=lambda name: (-found[name], name))}
