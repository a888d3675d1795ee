"""Folders that nobody else can write to, for what is executed or believed when it is read back.

    CACHE/KIND        where this user alone can write there, made with mode 0700
    TMPDIR/mirage_py_PID_XXXXXXXX/KIND
                      else: of this process, gone with it

Code for the CPU, machine code and verdicts of earlier runs are taken as they are found. So the
folder belongs to this user, is no link, and neither it nor what it lies in may be written to by
others; a sticky folder as /tmp may, for there nobody can move what is not theirs.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import stat
import tempfile
import warnings
import weakref
from pathlib import Path

from mirage_py.errors import MirageWarning
from mirage_py.settings import Settings

# Every kind of file that is cached so.
KINDS = (
    "checked",  # verdicts of the checker of emitted code
    "cubins",  # machine code of CUDA kernels
    "failures",  # regions that could not be served
    "gpus",  # whose turn it is to measure
    "measurements",  # times of plans, for a ranker to learn from
    "operators",  # times of operators of libraries
    "on_cpu",  # CUDA kernels as programs of the CPU
    "quarantine",  # plans that broke a GPU
    "rankers",  # what was learned from them
    "seals",  # results that were verified here
    "sources",  # emitted text as modules
    "verdicts",  # graphs that were measured as a whole
)
_PREFIX = "mirage_py_"
_LOCK = "in_use"
_VARIABLE = "MIRAGE_PY_SCRATCH"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_folder(kind: str) -> Path:
    """The folder for one kind of files, which is there."""
    assert kind in KINDS, kind
    cache = Settings.from_env().cache_dir
    folder = cache / kind
    fault = _made(folder) or why_not_private(folder)
    if not fault:
        return folder
    _warn(str(cache), fault)
    folder = scratch_folder() / kind
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def why_not_private(folder: Path) -> str:
    """How somebody else might write to a folder; empty where only this user can."""
    user = os.geteuid()
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            return f"{folder} is a link or no folder"
        if found.st_uid != user or found.st_mode & _OTHERS_WRITE:
            return f"{folder} belongs to somebody else, or others may write to it"
        for parent in folder.resolve().parents:
            above = parent.stat()
            shared = above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX
            if above.st_uid not in (user, 0) or shared:
                return f"{parent} belongs to somebody else, or others may write to it"
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return ""


@functools.cache
def scratch_folder() -> Path:
    """The temporary folder of this process, which goes when it ends; those of processes that were
    killed go now. Processes that this one starts have the same.
    """
    of_parent = Path(os.environ.get(_VARIABLE) or "/")
    if of_parent.name.startswith(_PREFIX) and not why_not_private(of_parent):
        return of_parent
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}_"))
    # Held as long as this process and what it forks live.
    handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.environ[_VARIABLE] = str(folder)
    weakref.finalize(scratch_folder, _remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Folders of this user whose lock nobody holds."""
    for folder in sorted(parent.glob(f"{_PREFIX}*_*")):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.lstat().st_uid != os.geteuid():
                continue
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _made(folder: Path) -> str:
    """Make a folder, and those above it, for this user alone; what was in the way."""
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    try:
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=0o700)
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written"


@functools.cache
def _warn(cache: str, fault: str) -> None:
    warnings.warn(
        f"what is compiled is not cached in {cache}: {fault}", MirageWarning, stacklevel=3
    )
