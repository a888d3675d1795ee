"""``mirage-py bench`` and ``python -m benchmarks``, after the options are parsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.farm import gpus
from benchmarks.report import table
from benchmarks.report.compare import Comparison, compare
from benchmarks.report.plots import write_plots
from benchmarks.report.record import read_document
from benchmarks.report.reports import write_reports
from benchmarks.suite.options import Options
from benchmarks.suite.run_suite import INTERRUPTED, run_suite

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Done:
    """A run: the document, the files that hold it, and whether Ctrl-C cut it short."""

    document: dict[str, Any]
    files: tuple[Path, ...]
    interrupted: bool

    @property
    def nothing_ran(self) -> bool:
        """Whether no row was measured although rows were tried."""
        return bool(self.document["failed"]) and not self.document["rows"]

    def text(self) -> str:
        """The table, the summary and where the files are."""
        return "\n".join([table.table(self.document), "", *map(str, self.files)])


def bench(options: Options, say: Say) -> Done:
    """Measure, or do everything else where there is no GPU; ``say`` gets a line a row."""
    if options.is_smoke or not (options.scheduler or gpus.visible()):
        from benchmarks.suite import smoke

        if not options.is_smoke:
            say(f"no NVIDIA GPU here: in place of {options.suite} the suite smoke runs")
        say(smoke.NOTHING)
        record = smoke.run_smoke(options, lambda row: say(table.line(row)))
    else:
        say(table.header())
        record = run_suite(options, say, lambda row: say(table.line(row)))
    files, missing = write_reports(record.document(), record.path)
    if missing:
        record.notes.append(missing)
    record.write()
    return Done(record.document(), (record.path, *files), INTERRUPTED in record.notes)


def compared(old: Path, new: Path, tolerance: float) -> Comparison:
    """Two result files, or the folders that hold them."""
    return compare(read_document(old), read_document(new), tolerance)


def drawn(path: Path) -> list[Path]:
    """The plots of a result file, beside it. Raises InputError without matplotlib."""
    document = read_document(path)
    folder = path if path.is_dir() else path.parent
    name = next(folder.glob("*-suite.json")).stem if path.is_dir() else path.stem
    return write_plots(document, folder, name)
