"""``--limit NAME=N``: bounds of the search by their names in ``SearchLimits``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from mirage_py.arguments import shown
from mirage_py.cli.input.options import WHOLE
from mirage_py.errors import InputError
from mirage_py.frontend.spec.source import did_you_mean
from mirage_py.search.enumerate.search import SearchLimits

_RINGS = "rings"
_NUMBERS = ("int", "int | None")


def read_limits(texts: Sequence[str]) -> SearchLimits:
    """The bounds of a search, those that are given changed. Raises InputError.

    Those that are numbers can be set, and ``rings``: ``factored`` leaves out the laws that multiply
    products out, ``expanded`` has them.
    """
    limits = SearchLimits()
    known = tuple(f.name for f in fields(limits) if f.type in _NUMBERS)
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        changed: dict[str, Any]
        if name == _RINGS and value in ("factored", "expanded"):
            changed = {name: ("factored",) if value == "factored" else ("factored", "expanded")}
        elif not (equals and WHOLE.fullmatch(value) and int(value)):
            raise InputError(
                f"{shown(text)} is not a limit",
                where="--limit",
                why="a limit is NAME=N, the number whole, from 1 to 10^18, or rings=factored",
                repair="for instance --limit max_tensors=6000",
            )
        elif name not in known:
            raise InputError(
                f"there is no limit {shown(name)}",
                where="--limit",
                why=f"the limits are {', '.join((*known, _RINGS))}",
                repair=did_you_mean(name, known, "name one of them"),
            )
        else:
            changed = {name: int(value)}
        limits = replace(limits, **changed)
    return limits
