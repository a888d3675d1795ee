"""Saving and loading of artifacts: those saved here are trusted, all others are checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mirage_py.errors import FormatError
from mirage_py.runtime.base.atomic import write_folder
from mirage_py.runtime.store.artifact import Artifact, artifact_files, load_artifact
from mirage_py.runtime.store.artifact_check import checked
from mirage_py.runtime.store.manifest import NAME
from mirage_py.runtime.store.seals import seal
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program


def load(folder: Path | str, *, check: bool = True) -> Callable[..., Any]:
    """The kernel of an artifact, ready to call. Needs torch and, as its plan says, triton or a
    compiler for CUDA (cupy or nvcc).

    Raises FormatError as ``load_artifact`` does. An artifact that this user did not save on this
    machine is compared with its program first, once; VerificationError if they differ.
    """
    found = load_artifact(folder)
    if check:
        found = checked(found)
    return found.runner()


def save_artifact(
    folder: Path | str, *, program: Program, plan: Plan | None, report: Mapping[str, Any]
) -> None:
    """Write the artifact folder in one step, over an older artifact if there is one.

    Raises FormatError when something else stands at ``folder``.
    """
    folder = Path(folder).absolute()
    if folder.exists() and not (folder / NAME).is_file() and not _is_empty(folder):
        raise FormatError(
            "is not an artifact and will not be replaced",
            where=str(folder),
            repair="choose another folder, or empty it first",
        )
    files = artifact_files(program, plan, report)
    write_folder(folder, files)
    seal(Artifact(program, plan, report))


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())
