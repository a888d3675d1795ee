"""Files that other processes see whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mirage_py.errors import InputError

# Of Linux: paths that are relative are so to the working folder; both names keep existing.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def writing(what: str, path: Path, repair: str) -> Iterator[None]:
    """Say of ``what`` is written to a place that a user named where that fails. Raises InputError
    in place of an OSError, whose file may be a hidden temporary one.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{what} cannot be written",
            where=str(path),
            why=error.strerror or str(error),
            repair=repair,
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write ``path`` in one step: a reader sees the old text or the new one, never half of it."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``path`` in one step: a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Put ``files`` (relative name -> text) at ``folder`` in one step, replacing what was there.

    Whoever is killed meanwhile leaves the old folder or the new one, and perhaps a hidden folder
    beside it. Where the file system cannot exchange two names there is a moment with nothing.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        staging.chmod(0o755)
        for name, text in files.items():
            path = staging / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        if folder.is_dir() and not folder.is_symlink() and _exchange(staging, folder):
            shutil.rmtree(staging, ignore_errors=True)
            return
        if folder.exists() or folder.is_symlink():
            remove_folder(folder)
        staging.replace(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def remove_debris(parent: Path) -> None:
    """Remove what writers that were killed left beside the folders in ``parent``.

    Only for those who keep writers out meanwhile.
    """
    for path in parent.glob(".*.????????"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Give each of two paths the other's content in one step; whether that can be done here."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    done = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return bool(done == 0)


def remove_folder(folder: Path) -> None:
    """Remove a folder (or a link to one) so that its name is free at once."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    grave = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".removed."))
    try:
        folder.replace(grave / folder.name)
    except FileNotFoundError:
        pass  # another process was faster
    finally:
        shutil.rmtree(grave, ignore_errors=True)
