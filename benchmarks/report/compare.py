"""Two result files cell by cell: what got slower, what got faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.report.summary import geomean, key_of

DEFAULT_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Comparison:
    """``cells`` are (key, old us, new us); ``only_old`` and ``only_new`` are keys that one file has
    a time for and the other has not. ``tolerance`` is the share that a cell may get slower by.
    """

    cells: tuple[tuple[str, float, float], ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    tolerance: float

    @property
    def slower(self) -> tuple[str, ...]:
        """Cells that got slower by more than the tolerance."""
        return tuple(k for k, old, new in self.cells if new > old * (1.0 + self.tolerance))

    @property
    def speedup(self) -> float | None:
        """Geometric mean of old over new time: above 1 the new file is faster."""
        return geomean(old / new for _, old, new in self.cells)

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "schema": 1,
            "cells": [
                {"key": k, "old_us": old, "new_us": new, "speedup": round(old / new, 4)}
                for k, old, new in self.cells
            ],
            "geomean_speedup": None if self.speedup is None else round(self.speedup, 4),
            "tolerance": self.tolerance,
            "slower": list(self.slower),
            "only_old": list(self.only_old),
            "only_new": list(self.only_new),
        }

    def text(self) -> str:
        """A line a cell, and what follows from it."""
        lines = [f"{'workload':26s} {'old us':>9s} {'new us':>9s} {'old/new':>8s}"]
        for key, old, new in self.cells:
            mark = "  slower" if key in self.slower else ""
            lines.append(f"{key:26s} {old:9.2f} {new:9.2f} {old / new:7.2f}x{mark}")
        if self.speedup is None:
            lines.append("no cell is in both files")
        else:
            lines.append(f"geometric mean of {len(self.cells)} cells: {self.speedup:.3f}x")
        for name, keys in (("old", self.only_old), ("new", self.only_new)):
            if keys:
                lines.append(f"timed in the {name} file only: {', '.join(keys)}")
        return "\n".join(lines)


def compare(
    old: Mapping[str, Any], new: Mapping[str, Any], tolerance: float = DEFAULT_TOLERANCE
) -> Comparison:
    """Our times in two documents. Files of other suites compare too, where cells are the same."""
    before, after = _times(old), _times(new)
    return Comparison(
        tuple((k, us, after[k]) for k, us in before.items() if k in after),
        tuple(k for k in before if k not in after),
        tuple(k for k in after if k not in before),
        tolerance,
    )


def _times(document: Mapping[str, Any]) -> dict[str, float]:
    return {key_of(row): row["ours_us"] for row in document["rows"] if row["ours_us"]}
