"""Text with indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def in_docstring(text: str) -> str:
    """Text of others as one line of a docstring: nothing in it ends the string or the line."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown.replace("\\", "\\\\").replace('"', '\\"')


class CodeWriter:
    """Collects lines; ``indented()`` nests them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        """Add one line (empty text adds a blank line)."""
        self._lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Everything written inside is one level deeper."""
        self._depth += 1
        yield
        self._depth -= 1

    def text(self) -> str:
        """All lines, ending in a newline."""
        return "\n".join(self._lines) + "\n"
