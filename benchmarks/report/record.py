"""The result file of a run: written after every row, so that a killed run keeps what it has."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report.summary import key_of, summary
from mirage_py.errors import InputError
from mirage_py.runtime.base.atomic import write_text

Json = dict[str, Any]
SCHEMA = 1
MEASUREMENTS = "measurements.jsonl.gz"


@dataclass(slots=True)
class Record:
    """Rows by their keys, with what was run where; ``folder`` holds the files.

    ``failed`` and ``not_run`` are keys with reasons.
    """

    folder: Path
    name: str
    machine: Mapping[str, Any]
    command: str
    commit: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: dict[str, Json] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    earlier: list[Json] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """``h200-suite.json``."""
        return self.folder / f"{self.name}-suite.json"

    def take(self, kept: Mapping[str, Any]) -> None:
        """Go on from a document: its rows stay, and the run that made them is named."""
        self.rows = {key_of(row): row for row in kept["rows"]}
        known = ("command", "commit", "date")
        self.earlier = [*kept.get("runs", []), {n: kept[n] for n in known if n in kept}]

    def add(self, row: Json, measurements: Sequence[Json]) -> None:
        """Keep a row and the lines of its plans."""
        self.rows[key_of(row)] = row
        self.failed.pop(key_of(row), None)
        with gzip.open(self.folder / MEASUREMENTS, "at", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in measurements)
        self.write()

    def document(self) -> Json:
        """The whole file."""
        found: Json = {
            "schema": SCHEMA,
            "machine": dict(self.machine),
            "command": self.command,
            "commit": self.commit,
            "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d"),
            "options": dict(self.options),
        }
        if self.earlier:
            found["runs"] = self.earlier
        return found | {
            "summary": summary(list(self.rows.values()), self.failed),
            "rows": list(self.rows.values()),
            "failed": self.failed,
            "not_run": self.not_run,
            "notes": self.notes,
        }

    def write(self) -> None:
        """Write the result file whole."""
        write_text(self.path, json.dumps(self.document(), indent=1) + "\n")


def read_document(path: Path) -> Json:
    """A result file, or the one that a folder holds.

    Raises InputError where there is none, or it is no result file.
    """
    if path.is_dir():
        found = sorted(path.glob("*-suite.json"))
        if len(found) != 1:
            raise InputError(
                f"{path} holds {len(found)} result files", repair="name the file instead"
            )
        path = found[0]
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read", why=str(error)) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is no result file", why=f"it does not say schema {SCHEMA}")
    rows = document.get("rows")
    if not isinstance(rows, list) or not all("workload" in r and "ours_us" in r for r in rows):
        raise InputError(f"{path} is no result file of a suite", why="it has no rows of workloads")
    return document
