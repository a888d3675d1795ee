"""A stage of an optimisation as texts: what there is after it, and what each came from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """A program, a µGraph, the source of a kernel.

    ``before`` is the text of what it was made from in an earlier stage, None where it is new.
    ``dropped`` says why it does not go on to the next stage.
    """

    title: str
    text: str
    before: str | None = None
    dropped: str = ""

    @property
    def changes(self) -> tuple[str, ...]:
        """The changed lines as a unified diff without context; empty where nothing changed."""
        if self.before is None:
            return ()
        old, new = self.before.splitlines(), self.text.splitlines()
        # The first two lines name the files.
        return tuple(difflib.unified_diff(old, new, lineterm="", n=0))[2:]

    @property
    def sort(self) -> str:
        """What became of it, in a word."""
        if self.dropped:
            return "dropped"
        if self.before is None:
            return "new"
        return "same" if self.before == self.text else "changed"

    @property
    def verdict(self) -> str:
        """What became of it, with the number of lines."""
        if self.sort != "changed":
            return self.sort
        changed = sum(line[0] in "+-" for line in self.changes)
        return f"{changed} lines changed" if changed > 1 else "1 line changed"


@dataclass(frozen=True, slots=True)
class Stage:
    """``name`` is a word, for the file; ``title`` says what has been done, ``notes`` why there is
    less than there could be.
    """

    name: str
    title: str
    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()

    def changed_first(self, most: int) -> tuple[Item, ...]:
        """Items that changed, then new ones, then what was dropped, then those that stayed: at most
        so many of each.
        """
        found: list[Item] = []
        for sort in ("changed", "new", "dropped", "same"):
            found += [item for item in self.items if item.sort == sort][:most]
        return tuple(found)

    @property
    def text(self) -> str:
        """Everything as text: each item after its title."""
        if len(self.items) == 1:
            return self.items[0].text
        return "\n".join(f"# {_note(item)}\n{item.text}" for item in self.items)

    @property
    def summary(self) -> str:
        """How many there are of each verdict."""
        counts: dict[str, int] = {}
        for item in self.items:
            counts[item.sort] = counts.get(item.sort, 0) + 1
        return ", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing"


def _note(item: Item) -> str:
    words = f"{item.title}; dropped: {item.dropped}" if item.dropped else item.title
    return words.replace("\n", " ")
