"""Views of progress: a line that changes, in a terminal or a notebook; nothing anywhere else."""

from __future__ import annotations

import html
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mirage_py.progress import Stage

Tell = Callable[[str], None]
# One line at a time: a search inside of a search, or in another thread, is silent.
_SHOWN = threading.Lock()


def line(stage: str) -> str:
    """A stage with what is known."""
    facts = stage.facts() if isinstance(stage, Stage) else ()
    return "; ".join([str(stage), *facts])


@contextmanager
def progress() -> Iterator[Tell]:
    """A function that shows each stage as it begins, where somebody looks: in a notebook, or where
    stderr is a terminal.
    """
    if not _SHOWN.acquire(blocking=False):
        yield lambda stage: None
        return
    try:
        if in_notebook():
            with _notebook() as tell:
                yield tell
        elif sys.stderr.isatty():
            with terminal_progress() as tell:
                yield tell
        else:
            yield lambda stage: None
    finally:
        _SHOWN.release()


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this process."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class _Now:
    """The stage now: what is left of the budget changes though nothing is told."""

    def __init__(self) -> None:
        self.stage = "starting"

    def __rich__(self) -> str:
        # A bracket opens a style of rich's.
        return line(self.stage).replace("[", r"\[")


@contextmanager
def terminal_progress(
    console: Any = None, on_stage: Callable[[Any, str], None] = lambda console, stage: None
) -> Iterator[Tell]:
    """A spinner with the stage, what is known, and the time; it is gone at the end. ``on_stage``
    may print more to the console.
    """
    from rich.console import Console
    from rich.progress import Progress, RenderableColumn, SpinnerColumn, TimeElapsedColumn

    now = _Now()
    console = console or Console(stderr=True)
    columns = (SpinnerColumn(), RenderableColumn(now), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        bar.add_task("", total=None)

        def begin(stage: str) -> None:
            on_stage(bar.console, stage)
            now.stage = stage

        yield begin


@contextmanager
def _notebook() -> Iterator[Tell]:
    """A line of the cell's output, which is empty in the end."""
    from importlib import import_module

    display = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)

    def show(stage: str) -> None:
        handle.update(display.HTML(f"<code>{html.escape(line(stage))}</code>"))

    try:
        yield show
    finally:
        handle.update(display.HTML(""))
