"""Display of values in notebooks and terminals: what calls the views, which are loaded when asked.

A value stands below what draws it, so it knows the views by name alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any


class Displayed:
    """A value that a notebook shows as HTML and ``rich`` in colours; else its ``repr`` is shown."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        return str(importlib.import_module("mirage_py.views.html").html(self))

    def __rich__(self) -> Any:
        """What ``rich.print`` shows."""
        return importlib.import_module("mirage_py.views.terminal").renderable(self)


class Reported(Displayed):
    """A kernel that knows the ``record`` of its result: what an artifact's ``report.json`` says."""

    __slots__ = ()

    def report(self, path: Path | str) -> Path:
        """Write what the record says as one HTML file, and return its path.

        Raises InputError where the kernel has no record: it was made of a plan's text.
        """
        write = importlib.import_module("mirage_py.report.write").write_kernel
        return Path(write(self, path))


def shown_progress() -> AbstractContextManager[Callable[[str], None]]:
    """A function that shows each stage where somebody looks: on a terminal, or in a notebook."""
    view: AbstractContextManager[Callable[[str], None]] = importlib.import_module(
        "mirage_py.views.progress_view"
    ).progress()
    return view
