"""A journal of a search: a resumable log of its finished jobs.

The first line of JSON describes the search; each further line is a finished job. An incomplete line
does not count, so a search may be killed at any moment, and the next one with the same journal
continues after the last complete line. Two searches cannot write to one journal at the same time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import warnings
import weakref
from pathlib import Path

from mirage_py.errors import InputError, MirageError, MirageWarning
from mirage_py.search.enumerate.jobs import Job, Setting
from mirage_py.search.enumerate.outcome_json import (
    Json,
    job_from_json,
    job_to_json,
    outcome_from_json,
    outcome_to_json,
    setting_to_json,
)
from mirage_py.search.extract.task import Outcome

_SCHEMA = 3
# The journal of a search of hours has some megabytes.
_MOST_BYTES = 1 << 30


# What reading a line may raise whose checksum fits although this search never wrote it.
_NOT_OURS = (
    MirageError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError,
    AssertionError, RecursionError,
)  # fmt: skip


class Journal:
    """``known`` has the jobs that were finished before. The file is made where there is none.

    It belongs to this object while that lives. Raises InputError where the file is another search's
    journal, in use, or none at all: nothing is overwritten.
    """

    def __init__(self, path: Path, setting: Setting) -> None:
        self.path = path
        self.known: dict[Job, Outcome] = {}
        self._header = {"journal": _SCHEMA, "search": _key(setting)}
        self._is_kept = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_kind(path)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            weakref.finalize(self, os.close, self._file)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end = self._read(path.read_bytes())
            os.ftruncate(self._file, end)
            if end == 0:
                self._append(self._header)
        except BlockingIOError:
            raise _unusable(path, "another search is writing to it") from None
        except (OSError, ValueError) as error:
            raise _unusable(path, str(error)) from None

    def add(self, job: Job, outcome: Outcome) -> None:
        """Keep a finished job. It is on disk when this returns.

        Where it cannot be written there is a warning, and no more is kept: the search goes on.
        """
        if not self._is_kept:
            return
        try:
            self._append({"job": job_to_json(job), "outcome": outcome_to_json(outcome)})
        except OSError as error:
            self._is_kept = False
            warnings.warn(f"the journal is not kept any more: {error}", MirageWarning, 2)

    def _append(self, data: Json) -> None:
        text = json.dumps(data, ensure_ascii=False)
        line = memoryview(f"{_check(text)} {text}\n".encode())
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)

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
                except _NOT_OURS:
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


def _check_kind(path: Path) -> None:
    """InputError for what is no file to write lines to: a pipe or device would be read for ever."""
    if not path.exists():
        return
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise _unusable(path, "it is no plain file")
    if facts.st_size > _MOST_BYTES:
        raise _unusable(path, f"it is larger than {_MOST_BYTES} bytes")


def _unusable(path: Path, why: str) -> InputError:
    return InputError(
        "the journal cannot be used",
        where=str(path),
        why=why,
        repair="name a file in a folder that can be written to",
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
