"""The output folder of a result: checked before the search, written after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mirage_py.arguments import path_of
from mirage_py.errors import InputError
from mirage_py.runtime.base.atomic import writing
from mirage_py.runtime.store.manifest import NAME as MANIFEST

if TYPE_CHECKING:
    from mirage_py.result import Result


def check_output(folder: Path) -> None:
    """InputError unless an artifact can be written to ``folder`` without losing anything.

    The folder may be missing, empty, or an artifact: that one is replaced.
    """
    if path_of("-o", folder).is_dir():
        held = sorted(path.name for path in folder.iterdir())
        if held and MANIFEST not in held:
            raise InputError(
                f"the folder holds other files ({', '.join(held[:3])}, ...)",
                where=str(folder),
                why="an artifact replaces its folder",
                repair=f"-o {folder / 'NAME.mirage'}",
            )
    elif folder.exists() or folder.is_symlink():
        raise InputError(
            "this is a file", where=str(folder), why="an artifact is a folder", repair="-o FOLDER"
        )
    above = folder.absolute().parent
    while not above.exists():
        above = above.parent
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        reason = "is not writable" if above.is_dir() else "is a file"
        raise InputError(
            "the artifact cannot be written",
            where=str(folder),
            why=f"{above} {reason}",
            repair="choose another folder with -o",
        )


def kernel_files(folder: Path) -> list[Path]:
    """The sources of an artifact's kernels, each a file that runs, or compiles, alone."""
    return sorted(p for p in (folder / "kernels").glob("*") if p.suffix in (".py", ".cu"))


def save_result(result: Result, folder: Path) -> Result:
    """Write the artifact; the result that knows its folder. Raises InputError where it cannot."""
    from mirage_py.pipeline.pipeline import save

    with writing("the artifact", folder, "make room, or choose another folder with -o"):
        return save(result, folder)
