"""Output to the user: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from math import isfinite
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Screen:
    """``color`` is auto, always or never; ``quiet`` wins over ``verbose`` for progress."""

    color: str = "auto"
    verbose: bool = False
    quiet: bool = False

    def out(self, text: str) -> None:
        """One piece of the result, on stdout."""
        click.echo(text, color=self._colored())

    def document(self, document: Mapping[str, Any]) -> None:
        """The one JSON document of a run, on stdout. JSON has no NaN: such numbers are null."""
        text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)
        click.echo(text)

    def message(self, text: str) -> None:
        """Something beside the result, on stderr."""
        click.echo(text, err=True, color=self._colored())

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None]]:
        """A function to call with the name of each stage as it begins.

        On a terminal the current stage turns a spinner; elsewhere stages are printed only with -v.
        """
        if self.quiet:
            yield lambda stage: None
        elif not sys.stderr.isatty():
            yield self.message if self.verbose else lambda stage: None
        else:
            yield from self._spinner()

    def _spinner(self) -> Iterator[Callable[[str], None]]:
        from rich.console import Console

        from mirage_py.views.progress_view import terminal_progress

        forced = {True: True, False: False, None: None}[self._colored()]
        console = Console(
            stderr=True, no_color=forced is False, force_terminal=True if forced else None
        )

        def say(lines: Console, stage: str) -> None:
            if self.verbose:
                lines.print(stage, markup=False, highlight=False)

        with terminal_progress(console, say) as begin:
            yield begin

    def _colored(self) -> bool | None:
        """Whether to write colors; None leaves it to whether the stream is a terminal."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        return True if os.environ.get("FORCE_COLOR") else None


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what others print to stderr: the user's module, a compiler, a worker process.

    stdout is for the result alone, so that ``--json`` gives one document whatever else happens.
    """
    with redirect_stdout(sys.stderr):
        try:
            sys.__stdout__.flush() if sys.__stdout__ else None
            kept = os.dup(1)
            os.dup2(2, 1)
        except OSError:  # a process without streams has nothing to protect
            yield
            return
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
