"""A registry: rows by name, each registered once."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from mirage_py.errors import UnsupportedError


class Named(Protocol):
    """Whatever has a name."""

    @property
    def name(self) -> str:
        """The name that it is asked for by."""


Row = TypeVar("Row", bound=Named)


class Registry(Generic[Row]):
    """Operators of one kind; ``kind`` stands behind their names in errors."""

    def __init__(self, kind: str = "") -> None:
        self._kind = kind
        self._rows: dict[str, Row] = {}

    def register(self, row: Row) -> Row:
        """Add an operator; a second one of the same name is a bug of the caller."""
        if row.name in self._rows:
            raise ValueError(f"operator '{row.name}' is registered twice")
        self._rows[row.name] = row
        return row

    def row(self, name: str) -> Row:
        """The operator called ``name``, or UnsupportedError."""
        found = self._rows.get(name)
        if found is None:
            raise UnsupportedError(
                f"unknown operator '{name}'{self._kind}",
                repair=f"use one of {', '.join(self._rows)}",
            )
        return found

    def rows(self) -> tuple[Row, ...]:
        """Every operator, in the order of registration."""
        return tuple(self._rows.values())
