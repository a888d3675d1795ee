"""Entries of the result cache with what their reports say of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirage_py.errors import FormatError, InputError
from mirage_py.formatting.kernel_format import count_text, size_text
from mirage_py.formatting.quantities import age_text
from mirage_py.result import SOURCES
from mirage_py.runtime.store.cache import Entry
from mirage_py.runtime.store.manifest import read_checked, read_manifest

KEY_WIDTH = 12
_HEAD = ("key", "program", "target", "time", "speedup", "kernels", "size", "used")


@dataclass(frozen=True, slots=True)
class Cached:
    """``report`` is empty where the entry is damaged."""

    entry: Entry
    report: dict[str, Any]

    @property
    def time(self) -> str:
        """The time of the best, and where it comes from."""
        best = self.report.get("best")
        return f"{best['time_us']:.2f} us {SOURCES[best['source']]}" if best else "damaged"

    @property
    def speedup(self) -> str:
        """Over the baseline."""
        best = self.report.get("best")
        return f"{best['speedup']:.2f}x" if best else ""

    @property
    def kernels(self) -> str:
        """How many there are; none where the original program is the result."""
        best = self.report.get("best")
        if not best:
            return ""
        return count_text(best["kernels"], "kernel") if best["kernels"] else "original"

    def document(self) -> dict[str, Any]:
        """As JSON data."""
        best = self.report.get("best") or {}
        return {
            "key": self.entry.key,
            "program": self.entry.program,
            "target": self.entry.target,
            "time_us": best.get("time_us"),
            "source": best.get("source"),
            "speedup": best.get("speedup"),
            "kernels": best.get("kernels"),
            "bytes": self.entry.bytes,
            "used_s": self.entry.used_s,
            "damaged": not self.report,
            "folder": str(self.entry.folder),
        }


def cached(entry: Entry) -> Cached:
    """An entry with its report, if that is what the manifest was made for."""
    try:
        report = json.loads(read_checked(entry.folder, "report.json", read_manifest(entry.folder)))
        best = report["best"]
        known = (
            all(isinstance(best[k], int | float) for k in ("time_us", "speedup", "kernels"))
            and best["source"] in SOURCES
        )
    except (FormatError, ValueError, KeyError, TypeError, RecursionError):
        return Cached(entry, {})
    return Cached(entry, report if known else {})


def table(rows: Sequence[Cached], now_s: float | None = None) -> Iterator[str]:
    """The entries in columns, with a head."""
    now_s = time.time() if now_s is None else now_s
    cells = [_HEAD, *(_cells(row, now_s) for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(_HEAD))]
    for line in cells:
        yield "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        ).rstrip()


def facts(held: Cached) -> Iterator[tuple[str, str]]:
    """All that is known of one entry, as labels and texts."""
    entry = held.entry
    yield "key", entry.key
    yield "program", entry.program
    yield "target", entry.target
    yield "best", held.time
    if held.report:
        yield "speedup", held.speedup
        yield "kernels", held.kernels
        for note in held.report.get("notes", ()):
            yield "note", str(note)
    yield "size", size_text(entry.bytes)
    yield "used", age_text(time.time() - entry.used_s)
    yield "folder", str(entry.folder)
    if held.report:
        yield "more", f"mirage-py explain {entry.folder}"


def total(rows: Sequence[Cached], folder: Path) -> str:
    """How many entries there are, and where."""
    size = size_text(sum(row.entry.bytes for row in rows))
    return f"{count_text(len(rows), 'entry', 'entries')}, {size} in {folder}"


def find(entries: Sequence[Entry], key: str) -> Entry:
    """The entry whose key begins with ``key``. Raises InputError unless there is one."""
    found = [entry for entry in entries if key and entry.key.startswith(key.lower())]
    if len(found) == 1:
        return found[0]
    why = "no key begins with it"
    if found:
        listed = ", ".join(e.key[:KEY_WIDTH] for e in found[:4])
        why = f"{len(found)} keys begin with it: {listed}"
    raise InputError(
        f"'{key}' names no entry" if not found else f"'{key}' names several entries",
        where="mirage-py cache",
        why=why,
        repair="`mirage-py cache ls` lists the keys",
    )


def _cells(row: Cached, now_s: float) -> tuple[str, ...]:
    return (
        row.entry.key[:KEY_WIDTH],
        row.entry.program,
        row.entry.target,
        row.time,
        row.speedup,
        row.kernels,
        size_text(row.entry.bytes),
        age_text(now_s - row.entry.used_s),
    )
