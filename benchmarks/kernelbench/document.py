"""The result file of a run: what is taken, what is refused and why, and how fast."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirage_py.runtime.eager.compiled import MODES

Json = dict[str, Any]

_QUOTED = re.compile(r" in `.*")
# The status of what PyTorch itself refuses in a type of numbers: a model that makes tensors of
# another one.
NOT_OF_THIS_TYPE = "not of this type"
# As slow as this beside torch.compile is not slower.
_MARGIN = 0.98


def summary(rows: Mapping[str, Json]) -> Json:
    """By level: how many were taken, why others were not, and how fast what was timed is."""
    found: Json = {}
    for level in sorted({key.partition("-")[0] for key in rows}):
        all_rows = {key: row for key, row in rows.items() if key.startswith(f"{level}-")}
        own = {key: row for key, row in all_rows.items() if row["status"] != NOT_OF_THIS_TYPE}
        taken = [row for row in own.values() if row["status"] == "taken"]
        in_parts = sum(row["status"] == "in parts" for row in own.values())
        refused = Counter(
            _QUOTED.sub("", row["reason"]) for row in own.values() if row["status"] != "taken"
        )
        found[level] = {
            "problems": len(own),
            "taken": len(taken),
            "in_parts": in_parts,
            "refused": dict(refused.most_common()),
            "not_of_this_type": [key for key in all_rows if key not in own],
            "identically_zero": [key for key, row in own.items() if row.get("zero")],
        }
        if any("us" in row for row in taken):
            found[level] |= _speed(own)
    return found


def over_compile(row: Json) -> float:
    """How many times faster than torch.compile, than the faster mode where both were timed. A peer
    that failed has no time; without any it is eager.
    """
    us = row["us"]
    return float(min([us[name] for name in MODES if name in us] or [us["eager"]]) / us["ours"])


def is_slower(row: Json) -> bool:
    """Whether a timed row is slower than torch.compile by more than 2 %."""
    return over_compile(row) < _MARGIN


def _speed(rows: Mapping[str, Json]) -> Json:
    """fast_p against eager as KernelBench has it, and the same against torch.compile."""
    timed = {key: row for key, row in rows.items() if "us" in row}
    right = {key: row for key, row in timed.items() if row["correct"]}
    over_eager = [row["us"]["eager"] / row["us"]["ours"] for row in right.values()]
    over = {key: over_compile(row) for key, row in right.items()}
    found: Json = {"timed": len(timed), "correct": len(right)}
    for p in (0, 1, 2):
        found[f"fast_{p}"] = sum(x > p for x in over_eager) / len(rows)
        found[f"fast_{p}_over_compile"] = sum(x > p for x in over.values()) / len(rows)
    found["geomean_over_eager"] = _geomean(over_eager)
    found["geomean_over_compile"] = _geomean([*over.values()])
    apart = [key for key in timed if key not in right]
    found["wrong"] = [key for key in apart if not timed[key].get("closer_than_eager")]
    found["closer_than_eager"] = [key for key in apart if key not in found["wrong"]]
    found["slower"] = {key: round(x, 3) for key, x in over.items() if is_slower(right[key])}
    return found


def row_line(row: Json) -> str:
    """A row in words."""
    if "us" not in row:
        return f"{row['status']} {row.get('reason', '')}"
    times = ", ".join(f"{name} {us:.1f}" for name, us in row["us"].items())
    right = "" if row["correct"] else "WRONG; "
    if row.get("closer_than_eager"):
        right = "apart from eager, and closer to float64; "
    return f"{right}{over_compile(row):.3f}x of torch.compile; {times} us; {row['served'][-90:]}"


def _geomean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def write(path: Path, facts: Json, rows: Mapping[str, Json]) -> None:
    """Facts of the run, the summary and each row, as JSON."""
    document = {**facts, "summary": summary(rows), "rows": dict(rows)}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def lines(rows: Mapping[str, Json]) -> list[str]:
    """The summary as text."""
    found = []
    for level, part in summary(rows).items():
        found.append(
            f"{level}: {part['taken']} of {part['problems']} taken, {part['in_parts']} in parts"
        )
        found += [f"  {count:3d}  {reason}" for reason, count in part["refused"].items()]
        if part.get("not_of_this_type"):
            found.append(f"  no problems in this type: {', '.join(part['not_of_this_type'])}")
        if part["identically_zero"]:
            found.append(f"  identically zero: {', '.join(part['identically_zero'])}")
        if "fast_1" in part:
            shares = ", ".join(f"fast_{p} {part[f'fast_{p}']:.2f}" for p in (0, 1, 2))
            found.append(f"  {shares}; geometric mean over eager {part['geomean_over_eager']}")
            shares = ", ".join(f"fast_{p} {part[f'fast_{p}_over_compile']:.2f}" for p in (1, 2))
            found.append(f"  {shares}; geometric mean {part['geomean_over_compile']} over compile")
            found.append(f"  slower: {part['slower'] or 'none'}; wrong: {part['wrong'] or 'none'}")
            closer = ", ".join(part["closer_than_eager"])
            found += [f"  apart from eager, and closer to float64: {closer}"] if closer else []
    return found
