"""A journal of a search: what is in it need not be done again.

One line of JSON for what is searched, then one for each job that was finished. A line is complete
or it does not count, so a search may be killed at any moment; the next one with the same journal
goes on after the last complete line.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from mirage_py.errors import FormatError, InputError
from mirage_py.search.jobs import Job, Setting
from mirage_py.search.outcome_json import (
    Json,
    job_from_json,
    job_to_json,
    outcome_from_json,
    outcome_to_json,
    setting_to_json,
)
from mirage_py.search.task import Outcome

_SCHEMA = 1


class Journal:
    """``known`` has the jobs that were finished before. The file is made where there is none.

    Raises InputError where the file is another search's journal, or none at all: nothing is
    overwritten.
    """

    def __init__(self, path: Path, setting: Setting) -> None:
        self.path = path
        self.known: dict[Job, Outcome] = {}
        self._header = {"journal": _SCHEMA, "search": _key(setting)}
        try:
            end = self._read(path.read_bytes()) if path.exists() else 0
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as out:
                out.truncate(end)
            if end == 0:
                self._append(self._header)
        except OSError as error:
            raise InputError(
                "the journal cannot be used",
                where=str(path),
                why=str(error),
                repair="name a file in a folder that can be written to",
            ) from None

    def add(self, job: Job, outcome: Outcome) -> None:
        """Keep a finished job. It is on disk when this returns."""
        self._append({"job": job_to_json(job), "outcome": outcome_to_json(outcome)})

    def _append(self, data: Json) -> None:
        text = json.dumps(data, ensure_ascii=False)
        with self.path.open("ab") as out:
            out.write(f"{_check(text)} {text}\n".encode())
            out.flush()
            os.fsync(out.fileno())

    def _read(self, content: bytes) -> int:
        """Take in the complete lines; where they end."""
        end = 0
        for number, line in enumerate(content.splitlines(keepends=True)):
            data = _parsed(line)
            if number == 0:
                self._check_header(line, data)
            if data is None:
                break
            if number > 0:
                try:
                    outcome = outcome_from_json(data["outcome"], f"{self.path}:{number + 1}")
                    self.known[job_from_json(data["job"])] = outcome
                except (FormatError, KeyError, TypeError):
                    break
            end += len(line)
        return end

    def _check_header(self, line: bytes, data: Json | None) -> None:
        if data is None and not line.endswith(b"\n"):
            return  # killed while its first line was written
        if data != self._header:
            raise InputError(
                "the journal is of another search",
                where=str(self.path),
                why="program, seed, limits or version differ, or the file is no journal",
                repair="name another file, or remove this one",
            )


def _key(setting: Setting) -> str:
    from mirage_py import __version__

    text = json.dumps([__version__, setting_to_json(setting)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _check(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parsed(line: bytes) -> Json | None:
    """The data of a line, None if it is not complete or was altered."""
    try:
        check, _, text = line.decode().partition(" ")
        if not text.endswith("\n") or check != _check(text.removesuffix("\n")):
            return None
        data = json.loads(text)
    except (UnicodeDecodeError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
