"""Stages as text files, for looking at, editing and feeding back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class Dump:
    """Writes each stage to ``NN_name.txt`` in a folder, or nothing where there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.count = 0

    def __call__(self, stage: str, text: Callable[[], str]) -> None:
        """Write one stage; its text is only made where somebody wants it."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self.count:02d}_{stage}.txt").write_text(text(), encoding="utf-8")
        self.count += 1
