"""The result cache, addressed by content: an artifact folder for everything that could change it.

    ROOT/v1/TARGET/KEY/      an artifact; KEY is a SHA-256 of program, target, back end, versions,
    settings

Readable files, never pickles. Entries appear whole or not at all, and any number of processes may
use the folder at once: readers share a lock that writers and removers hold alone. A damaged entry
is a miss, and goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mirage_py import __version__
from mirage_py.errors import FormatError, InputError, MirageWarning
from mirage_py.runtime.base.atomic import remove_debris, remove_folder, write_folder
from mirage_py.runtime.base.private_folder import KINDS
from mirage_py.runtime.store.artifact import Artifact, artifact_files, load_artifact
from mirage_py.runtime.store.manifest import NAME, read_plain
from mirage_py.runtime.store.seals import seal
from mirage_py.settings import Settings
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program

LAYOUT = "v1"
_LOCK = ".lock"
_TARGET = re.compile("[a-z0-9_]{1,40}")
_KEY = re.compile("[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One cached result. ``used_s`` is the time of its last use, in seconds since the epoch."""

    key: str
    target: str
    program: str
    bytes: int
    used_s: float
    folder: Path


def cache_key(
    program: Program, target: str, backend: str, settings: Mapping[str, str] | None = None
) -> str:
    """The key of a result: a SHA-256 over everything that it may depend on.

    ``settings`` are the options that change what is found (effort, seed, precision).
    """
    compilers = toolchain()
    if backend == "triton":
        del compilers["cuda"]
    content = {
        "program": program.digest,
        "target": target,
        "backend": backend,
        **compilers,
        "settings": dict(settings or {}),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def toolchain() -> dict[str, str]:
    """The versions of what makes kernels: with others, another plan may win."""
    return {
        "mirage_py": __version__,
        "triton": _version("triton"),
        "cuda": _cuda_compiler(),
    }


class ResultCache:
    """The cache in a folder, by default the one of MIRAGE_PY_CACHE_DIR."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or Settings.from_env().cache_dir) / LAYOUT

    def folder(self, target: str, key: str) -> Path:
        """Where an entry lies or would lie."""
        if not (_TARGET.fullmatch(target) and _KEY.fullmatch(key)):
            raise ValueError(f"no cache key: {target!r:.80}/{key!r:.80}")
        return self.root / target / key

    def get(self, target: str, key: str) -> Artifact | None:
        """The result under a key, or None. A damaged entry counts as none and is removed.

        A folder that cannot be looked at is a warning and None.
        """
        folder = self.folder(target, key)
        try:
            return self._get(folder, target)
        except OSError as error:
            warnings.warn(f"the cache is not used: {error}", MirageWarning, stacklevel=2)
            return None

    def _get(self, folder: Path, target: str) -> Artifact | None:
        with self._lock(fcntl.LOCK_SH):
            if not folder.is_dir():
                return None
            try:
                found = load_artifact(folder)
            except FormatError:
                found = None
            if found is not None and found.report.get("target", target) != target:
                found = None  # moved here from another target's folder
            if found is not None:
                with contextlib.suppress(OSError):
                    os.utime(folder / NAME)
        if found is None:
            self._remove_damaged(folder)
        return found

    def put(
        self,
        target: str,
        key: str,
        *,
        program: Program,
        plan: Plan | None,
        report: Mapping[str, Any],
        verified: bool = True,
    ) -> Path | None:
        """Keep a result, over an older one; its folder, or None where the cache cannot be written.
        One that was ``verified`` is believed when it is read back.

        That is a warning and no error: a kernel must not fail because a disk is full.
        """
        folder = self.folder(target, key)
        files = artifact_files(program, plan, report)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self._lock(fcntl.LOCK_EX):
                write_folder(folder, files)
        except OSError as error:
            warnings.warn(f"the result is not cached: {error}", MirageWarning, stacklevel=2)
            return None
        if verified:
            seal(Artifact(program, plan, report))
        return folder

    def drop(self, target: str, key: str) -> None:
        """Remove what is under a key, where that is allowed."""
        folder = self.folder(target, key)
        with contextlib.suppress(OSError), self._lock(fcntl.LOCK_EX):
            if folder.is_dir():
                remove_folder(folder)

    def entries(self) -> tuple[Entry, ...]:
        """Every entry, the most recently used first. Damaged ones are listed too.

        Raises InputError where the folder cannot be looked at.
        """
        try:
            with self._lock(fcntl.LOCK_SH):
                folders = [f for f in sorted(self.root.glob("*/*")) if f.is_dir()]
                found = [_entry(f) for f in folders if _KEY.fullmatch(f.name)]
        except OSError as error:
            raise InputError(
                "the cache cannot be read",
                where=str(self.root),
                why=error.strerror or str(error),
                repair="see who owns it, or name another with MIRAGE_PY_CACHE_DIR",
            ) from error
        found.sort(key=lambda e: (-e.used_s, e.key))
        return tuple(found)

    def remove(self, entry: Entry) -> None:
        """Remove one entry. Raises InputError where that is not allowed."""
        try:
            with self._lock(fcntl.LOCK_EX):
                if entry.folder.is_dir():
                    remove_folder(entry.folder)
        except OSError as error:
            raise InputError(
                "the entry cannot be removed",
                where=str(entry.folder),
                why=error.strerror or str(error),
                repair="see who owns the cache, or name another with MIRAGE_PY_CACHE_DIR",
            ) from error

    def stale(
        self, *, max_bytes: int | None = None, older_than_s: float | None = None
    ) -> tuple[Entry, ...]:
        """Entries that were not used for ``older_than_s`` seconds, and the least recently used
        beyond the first ``max_bytes``; all of them when neither is given.
        """
        found: list[Entry] = []
        kept_bytes = 0
        now = time.time()
        for entry in self.entries():
            too_old = older_than_s is not None and now - entry.used_s > older_than_s
            too_many = max_bytes is not None and kept_bytes + entry.bytes > max_bytes
            if too_old or too_many or (max_bytes is None and older_than_s is None):
                found.append(entry)
            else:
                kept_bytes += entry.bytes
        return tuple(found)

    def prune(
        self, *, max_bytes: int | None = None, older_than_s: float | None = None
    ) -> tuple[Entry, ...]:
        """Remove the stale entries; returns the removed."""
        removed = self.stale(max_bytes=max_bytes, older_than_s=older_than_s)
        for entry in removed:
            self.remove(entry)
        self.sweep()
        return removed

    def compiled_bytes(self) -> int:
        """What else lies in the cache: compiled code, verdicts and records of earlier runs."""
        return sum(_size(self.root.parent / kind) for kind in KINDS)

    def clear(self) -> None:
        """Remove all that there is: entries, and what else lies beside them. A file of the user's
        own in the folder stays. Raises InputError where that is not allowed.
        """
        for entry in self.entries():
            self.remove(entry)
        for path in (self.root.parent / "gpus").glob("*"):
            _remove_unless_locked(path)
        for kind in KINDS:
            if kind != "gpus":
                shutil.rmtree(self.root.parent / kind, ignore_errors=True)
        with contextlib.suppress(OSError), self._lock(fcntl.LOCK_EX):
            shutil.rmtree(self.root)
        for folder in (self.root.parent / "gpus", self.root.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def sweep(self) -> None:
        """Remove what writers that were killed left behind."""
        with contextlib.suppress(OSError), self._lock(fcntl.LOCK_EX):
            for target in sorted(self.root.glob("*")):
                remove_debris(target)

    # -- inside ----------------------------------------------------------------------------------

    def _remove_damaged(self, folder: Path) -> None:
        """Remove the entry unless somebody has put a sound one there meanwhile."""
        target = folder.parent.name
        with contextlib.suppress(OSError), self._lock(fcntl.LOCK_EX):
            try:
                sound = load_artifact(folder).report.get("target", target) == target
            except FormatError:
                sound = False
            if not sound:
                remove_folder(folder)

    @contextlib.contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        """Hold the cache's lock, shared or alone.

        Where there is no lock file to be had nothing can be written either, so readers go on
        without.
        """
        try:
            handle = self._lock_file(kind)
        except OSError:
            if kind == fcntl.LOCK_EX:
                raise
            yield
            return
        try:
            fcntl.flock(handle, kind)
            # Whoever held it may have removed it, and somebody else may hold its successor.
            while not self._is_lock_file(handle):
                os.close(handle)
                handle = self._lock_file(kind)
                fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)

    def _is_lock_file(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), (self.root / _LOCK).stat())
        except FileNotFoundError:
            return False

    def _lock_file(self, kind: int) -> int:
        path = self.root / _LOCK
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            if kind == fcntl.LOCK_EX:
                raise
            # Somebody else's cache: it can be read while its owner writes.
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _entry(folder: Path) -> Entry:
    try:
        used_s = (folder / NAME).stat().st_mtime
    except OSError:
        used_s = 0.0
    try:
        program = str(json.loads(read_plain(folder, "program.json"))["name"])
    except (FormatError, ValueError, KeyError, TypeError, RecursionError):
        program = "(damaged)"
    return Entry(folder.name, folder.parent.name, program, _size(folder), used_s, folder)


def _remove_unless_locked(path: Path) -> None:
    """Two processes must not both hold what is one name."""
    with contextlib.suppress(OSError), path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # gone, or not to be looked at
            facts = path.lstat()
            size += facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return size


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _cuda_compiler() -> str:
    """What CUDA kernels are compiled by, without starting it: with another, or with one where there
    was none, another plan may win.
    """
    for package in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        found = _version(package)
        if found != "none":
            return f"{package} {found}"
    return "nvcc" if shutil.which("nvcc") else "none"
