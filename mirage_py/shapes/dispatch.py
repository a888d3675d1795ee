"""The dispatch table from sizes to kernels: the first row whose predicate holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from mirage_py.shapes.predicate import SizePredicate

T = TypeVar("T")

_HEADINGS = ("sizes", "served by", "source", "calls")


@dataclass(slots=True)
class Row(Generic[T]):
    """``source`` is where the entry came from (searched, cached, fallback); ``calls`` counts."""

    predicate: SizePredicate
    entry: T
    served_by: str
    source: str
    calls: int = 0


class DispatchTable(Generic[T]):
    """Rows in the order in which they were made. Reading needs no lock, adding the caller's."""

    def __init__(self) -> None:
        self._rows: tuple[Row[T], ...] = ()

    def add(self, row: Row[T]) -> Row[T]:
        """Add a row after the others."""
        self._rows = (*self._rows, row)
        return row

    def discard(self, row: Row[T]) -> None:
        """Take a row out that nothing is to be served by any more."""
        self._rows = tuple(r for r in self._rows if r is not row)

    def find(self, sizes: Mapping[str, int]) -> Row[T] | None:
        """The first row that holds for these sizes."""
        for row in self._rows:
            if row.predicate.holds(sizes):
                return row
        return None

    def __iter__(self) -> Iterator[Row[T]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        cells = [_HEADINGS]
        cells += [(str(r.predicate), r.served_by, r.source, str(r.calls)) for r in self._rows]
        widths = [max(len(row[n]) for row in cells) for n in range(len(_HEADINGS))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        )
