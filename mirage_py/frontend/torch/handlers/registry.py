"""The table of ATen operators: which handler turns each into nodes of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Handler = Callable[..., Any]
_H = TypeVar("_H", bound=Handler)


@dataclass(frozen=True, slots=True)
class Row:
    """One ATen operator.

    ``handler(lowering, *args, **kwargs)`` takes the operator's arguments with arrays in the place
    of tensors, and returns an array or a tuple of arrays. ``family`` is the file it lives in.
    ``aliases`` says that torch's result may share memory with the first argument.
    """

    operator: str
    handler: Handler
    family: str
    aliases: bool = False


_ROWS: dict[str, Row] = {}


def handles(*operators: str, aliases: bool = False) -> Callable[[_H], _H]:
    """Register a handler for operators named as torch prints them, without ``aten.``."""

    def register(handler: _H) -> _H:
        family = handler.__module__.rpartition(".")[2]
        for operator in operators:
            name = f"aten.{operator}"
            if name in _ROWS:
                raise ValueError(f"'{name}' has two handlers")
            _ROWS[name] = Row(name, handler, family, aliases)
        return handler

    return register


def rows() -> Mapping[str, Row]:
    """Every registered operator by name."""
    return _ROWS
