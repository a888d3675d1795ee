"""Stages as text files, to look at, edit and feed back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mirage_py.errors import InputError


class Dump:
    """Writes each stage to ``NN_name.txt`` in a folder, or nothing where there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.count = 0

    def __call__(self, stage: str, text: Callable[[], str]) -> None:
        """Write one stage; its text is only made where somebody wants it."""
        if self.folder is None:
            return
        path = self.folder / f"{self.count:02d}_{stage}.txt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text(), encoding="utf-8")
        except OSError as error:
            raise InputError(
                "the stage cannot be written",
                where=str(path),
                why=error.strerror or str(error),
                repair="make room, or set MIRAGE_PY_DUMP to another folder",
            ) from error
        self.count += 1
