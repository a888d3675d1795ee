"""A function that no kernel serves as a whole, and what runs instead of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mirage_py.errors import MirageWarning
from mirage_py.frontend import refused_calls
from mirage_py.reasons import Served, Server


class Parts(Protocol):
    """A function in parts, called as it is."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""

    @property
    def served(self) -> Served:
        """What serves it, decided by the first call."""

    @property
    def lines(self) -> Sequence[str]:
        """What became of its graphs."""

    @property
    def settled(self) -> Callable[..., Any]:
        """What it calls, decided by the first call."""


class RefusedFunction:
    """What runs instead of a refused function, called as it is; ``name`` is for the one warning
    that says what serves it.
    """

    def __init__(self, parts: Parts, name: str, error: Exception) -> None:
        self._parts = parts
        self._name = name
        self._error = error
        self._call: Callable[..., Any] = self._first

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self._call(*args, **kwargs)

    @property
    def served(self) -> Served:
        """What serves it, decided by the first call."""
        return self._parts.served

    @property
    def lines(self) -> tuple[str, ...]:
        """What became of its graphs."""
        return tuple(self._parts.lines)

    @property
    def settled(self) -> Callable[..., Any]:
        """What serves its calls after the first, without this object in between."""
        return self._parts.settled

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        self._call = self._parts
        try:
            return self._parts(*args, **kwargs)
        finally:
            by = self.served.by
            how = "falls back to eager" if by is Server.EAGER else f"is served by {by}"
            level = refused_calls.callers_level()
            warnings.warn(f"{self._name} {how}: {self._error}", MirageWarning, stacklevel=level)
