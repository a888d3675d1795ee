"""Writing of reports: of an artifact's folder, a packed artifact or a benchmark file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirage_py.arguments import path_of
from mirage_py.errors import FormatError, InputError
from mirage_py.report.packed import KIND, unpacked
from mirage_py.report.refused_report import Refusal, refused_html
from mirage_py.report.result_report import report_html
from mirage_py.report.rows_report import rows_html
from mirage_py.runtime.base.atomic import write_text, writing
from mirage_py.runtime.store.artifact import Artifact, load_artifact
from mirage_py.ugraph.text.files import read_text
from mirage_py.ugraph.text.json_reading import parse_json


def write_report(subject: Artifact | Path | str, path: Path | str, *, only: str = "") -> Path:
    """Write one HTML file and return its path. ``subject`` is an artifact or its folder, a packed
    artifact, or a file of the suite or of whole models, of which ``only`` takes the rows whose
    names begin so.

    Raises FormatError for anything else, and InputError where the file cannot be written.
    """
    target = path_of("path", path)
    write_file(target, html_of(subject, only=only))
    return target


def write_file(path: Path, text: str) -> None:
    """Write a report, or a packed one. Raises InputError where that cannot be done."""
    with writing("the report", path, "make room, or name another file"):
        write_text(path, text)


def write_kernel(kernel: Any, path: Path | str) -> Path:
    """The same for a kernel that was loaded, or that is a result's."""
    plan = getattr(kernel, "plan", None)
    program = kernel.program if plan is None else plan.ugraph.program
    if not kernel.record or program is None:
        raise InputError(
            "nothing is known of this kernel but its text",
            where=repr(kernel),
            why="a plan's text has no record of its search, checks and times",
            repair="load it from an artifact's folder, or ask the result for its report",
        )
    return write_report(Artifact(program, plan, kernel.record), path)


def write_refused(refusal: Refusal, path: Path | str) -> Path:
    """The same for a program that was refused."""
    target = path_of("path", path)
    write_file(target, refused_html(refusal))
    return target


def html_of(subject: Artifact | Path | str, *, only: str = "") -> str:
    """The report as text. Raises as ``write_report`` does."""
    if isinstance(subject, Artifact):
        return report_html(subject)
    source = path_of("subject", subject)
    if source.is_dir():
        return report_html(load_artifact(source))
    where = str(source)
    repair = "pass an artifact's folder, or a JSON file of `mirage-py bench`"
    try:
        document = parse_json(read_text(source), where)
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError("cannot be read", where=where, why=str(error), repair=repair) from None
    if isinstance(document, dict) and document.get("kind") == KIND:
        return report_html(unpacked(document, where))
    if isinstance(document, dict) and _has_rows(document):
        return rows_html(document, only or source.stem, only=only)
    raise FormatError("there is nothing to report in it", where=where, repair=repair)


def _has_rows(document: Mapping[str, Any]) -> bool:
    rows = document.get("rows")
    return isinstance(rows, list) and bool(rows) and all("workload" in row for row in rows)
