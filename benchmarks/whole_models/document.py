"""The result file of whole models."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

from benchmarks.report.record import SCHEMA
from benchmarks.whole_models.zoo import WHOLE_MODELS
from mirage_py.runtime.base.atomic import write_text

Json = dict[str, Any]


class Document:
    """It is written after every row so that a run that is killed keeps what it has."""

    def __init__(self, path: Path | None, head: Json) -> None:
        self.path = path
        self.head = head
        self.machine: Json = {}
        self.rows: dict[str, Json] = {}
        self.failed: dict[str, str] = {}
        self.not_run: dict[str, str] = {}

    def take(self, kept: Json) -> None:
        """Go on from a document: rows without faults stay, and the run that made them is named."""
        known = ("command", "commit", "date", "options")
        self.head["runs"] = [*kept.get("runs", []), {name: kept[name] for name in known}]
        self.rows = {
            f"{row['workload']}-b{row['batch']}": row for row in kept["rows"] if not row["faults"]
        }
        self.failed = dict(kept["failed"])

    def add(self, key: str, row: Json) -> None:
        """A row, which counts as failed where it has faults; its figures are kept all the same."""
        self.rows[key] = row
        self.failed.pop(key, None)
        if row["faults"]:
            self.failed[key] = "; ".join(row["faults"])
        self.write()

    def fail(self, key: str, reason: str) -> None:
        """A row of which nothing is left."""
        self.failed[key] = reason
        self.write()

    def json(self) -> Json:
        """The whole file; rows in the order of ``WHOLE_MODELS``."""
        keys = [f"{model.name}-b{batch}" for model in WHOLE_MODELS.values() for batch in
                model.batches]  # fmt: skip
        return {
            "schema": SCHEMA,
            "machine": self.machine,
            **self.head,
            "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d"),
            "rows": [self.rows[key] for key in keys if key in self.rows],
            "failed": self.failed,
            "not_run": self.not_run,
        }

    def write(self) -> None:
        """Write the file, if there is to be one."""
        if self.path is not None:
            write_text(self.path, json.dumps(self.json(), indent=1) + "\n")
