"""Validity predicates of a kernel: ranges, multiples and equalities of named sizes.

A predicate prints as text, reads back, and is asked at every call, so it answers in less than a
microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirage_py.errors import FormatError

_RANGE = re.compile(r"(?:(\d+) <= )?([A-Za-z_]\w*)(?: <= (\d+))?")
_MULTIPLE = re.compile(r"([A-Za-z_]\w*) % (\d+) == 0")
_EQUAL = re.compile(r"([A-Za-z_]\w*) == ([A-Za-z_]\w*|\d+)")


@dataclass(frozen=True, slots=True)
class Range:
    """lo <= size <= hi."""

    name: str
    lo: int
    hi: int

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true of these sizes."""
        return self.lo <= sizes[self.name] <= self.hi

    def __str__(self) -> str:
        if self.lo == self.hi:
            return f"{self.name} == {self.lo}"
        return f"{self.lo} <= {self.name} <= {self.hi}"


@dataclass(frozen=True, slots=True)
class Multiple:
    """size % of == 0."""

    name: str
    of: int

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true of these sizes."""
        return sizes[self.name] % self.of == 0

    def __str__(self) -> str:
        return f"{self.name} % {self.of} == 0"


@dataclass(frozen=True, slots=True)
class Equal:
    """Two sizes are one."""

    name: str
    other: str

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true of these sizes."""
        return sizes[self.name] == sizes[self.other]

    def __str__(self) -> str:
        return f"{self.name} == {self.other}"


Clause = Range | Multiple | Equal


@dataclass(frozen=True, slots=True)
class SizePredicate:
    """Holds where all of its clauses hold; without any, always."""

    clauses: tuple[Clause, ...] = ()

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes, by name, fulfil every clause."""
        for clause in self.clauses:  # noqa: SIM110  a generator would take twice as long
            if not clause.holds(sizes):
                return False
        return True

    def __str__(self) -> str:
        return ", ".join(map(str, self.clauses)) or "always"

    @classmethod
    def parse(cls, text: str) -> SizePredicate:
        """The predicate that prints so. Raises FormatError for other text."""
        if text == "always":
            return cls()
        return cls(tuple(map(_clause, text.split(", "))))

    @classmethod
    def ranges(cls, bounds: Mapping[str, Sequence[int]]) -> SizePredicate:
        """One range for each name, with its smallest and largest size."""
        return cls(tuple(Range(name, low, high) for name, (low, high) in bounds.items()))


def _clause(text: str) -> Clause:
    if found := _MULTIPLE.fullmatch(text):
        return Multiple(found[1], int(found[2]))
    if found := _EQUAL.fullmatch(text):
        if found[2].isdigit():
            return Range(found[1], int(found[2]), int(found[2]))
        return Equal(found[1], found[2])
    found = _RANGE.fullmatch(text)
    if found is None or found[1] is None or found[3] is None:
        raise FormatError(
            f"{text!r:.80} is no condition on sizes",
            repair="write it as 2 <= s <= 128, s % 16 == 0 or s == t",
        )
    return Range(found[2], int(found[1]), int(found[3]))
