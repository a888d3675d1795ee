"""The stages of an optimisation in a folder: a text file and a page for each, and an index.

    index.html        what has been done, and how it ended
    00_program.html   what changed, first; then everything
    00_program.txt    the same as text, to edit and feed back

Each file is written in one step, when its stage is over: after a crash the folder has everything up
to there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirage_py.pipeline.trace.stage import Stage

if TYPE_CHECKING:
    from mirage_py.pipeline.trace.page import Link


@dataclass(frozen=True, slots=True)
class _Written:
    """A stage that has its files."""

    file: str
    stage: Stage
    seconds: float


class Trace:
    """Writes each stage to files of a folder, or nothing where there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._written: list[_Written] = []
        self._began = time.monotonic()
        self._ending = ""

    def __call__(self, make: Callable[[], Stage], *, part: str = "") -> None:
        """Write one stage, of one ``part`` of a program; it is made where somebody wants it."""
        if self.folder is None:
            return
        now = time.monotonic()
        stage = make()
        stage = replace(stage, title=f"{part}: {stage.title}") if part else stage
        one = _Written(f"{len(self._written):02d}_{stage.name}", stage, now - self._began)
        before = self._written[-1] if self._written else None
        self._written.append(one)
        self._write(f"{one.file}.txt", stage.text)
        self._write_page(one, before, None)
        if before is not None:
            # It has a stage behind it now.
            earlier = self._written[-3] if len(self._written) > 2 else None
            self._write_page(before, earlier, one)
        self._write_index()
        # What writing takes belongs to no stage.
        self._began = time.monotonic()

    @contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Say in the index how what is done meanwhile ended."""
        try:
            yield
        except BaseException as error:
            self._end(f"ended by {type(error).__name__}: {error}")
            raise
        self._end("finished")

    def _end(self, ending: str) -> None:
        if self._written:
            self._ending = ending
            self._write_index()

    def _write_page(self, one: _Written, before: _Written | None, after: _Written | None) -> None:
        # Not above: requests have a trace, and `--help` loads them.
        from mirage_py.pipeline.trace.page import stage_page

        links = (None if w is None else _link(w) for w in (before, after))
        self._write(f"{one.file}.html", stage_page(one.stage, f"{one.file}.txt", *links))

    def _write_index(self) -> None:
        from mirage_py.pipeline.trace.page import index_page

        rows = [(_link(w), w.stage.summary, w.seconds) for w in self._written]
        self._write("index.html", index_page(rows, self._ending))

    def _write(self, name: str, text: str) -> None:
        from mirage_py.runtime.base.atomic import write_text, writing

        assert self.folder is not None
        path = self.folder / name
        repair = "make room, or name another folder (--trace-stages, MIRAGE_PY_DUMP)"
        with writing("the stage", path, repair):
            write_text(path, text)


def _link(one: _Written) -> Link:
    from mirage_py.pipeline.trace.page import Link

    return Link(f"{one.file}.html", one.stage.name, one.stage.title)
