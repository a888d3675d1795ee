"""The text of a spec, and errors that point into it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from mirage_py.errors import SourcePosition, SpecError
from mirage_py.frontend.spec.tree import Span


@dataclass(frozen=True)
class Source:
    """A spec's text and the name of its file."""

    file: str
    text: str

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The text by lines."""
        return tuple(self.text.split("\n"))

    def error(self, span: Span, what: str, *, why: str = "", repair: str) -> SpecError:
        """An error at ``span``; every one of them names a repair."""
        line = self.lines[span.line - 1] if span.line <= len(self.lines) else ""
        end = span.end_column if span.end_line == span.line else len(line) + 1
        position = SourcePosition(
            file=self.file,
            line=span.line,
            column=span.column,
            # The caret counts characters, so a tab must be as wide as one.
            source_line=line.replace("\t", " ").rstrip(),
            width=max(1, end - span.column),
        )
        return SpecError(what, position, why=why, repair=repair)

    def line_of(self, span: Span) -> str:
        """A place in words, for the second place of an error that has two."""
        return f"line {span.line}, column {span.column}"


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The repair for an unknown name: the nearest known ones, or ``otherwise``."""
    candidates = list(dict.fromkeys(known))
    # One wrong letter of two or three is already a far match for difflib, and so is a wrong case.
    near = difflib.get_close_matches(name, candidates, n=3, cutoff=0.6 if len(name) > 3 else 0.5)
    near = near or [k for k in candidates if k.lower() == name.lower()]
    return f"did you mean {' or '.join(repr(n) for n in near)}?" if near else otherwise
