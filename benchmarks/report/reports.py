"""Readable files written with a result file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import plots
from benchmarks.report.csv_form import csv_text
from mirage_py.runtime.base.atomic import write_text

NO_PLOTS = "no plots: matplotlib is not installed (pip install -e '.[bench]')"


def write_reports(document: Mapping[str, Any], path: Path) -> tuple[list[Path], str]:
    """CSV and plots of the result file ``path``; what was written, and why plots are missing."""
    csv = path.with_suffix(".csv")
    write_text(csv, csv_text(document))
    if not plots.are_possible():
        return [csv], NO_PLOTS
    return [csv, *plots.write_plots(document, path.parent, path.stem)], ""
