"""Numbers of the command line that click's own types let through (NaN seconds, negative seeds), and
``--limit NAME=N``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import click

from mirage_py.arguments import shown
from mirage_py.errors import InputError
from mirage_py.frontend.spec.source import did_you_mean
from mirage_py.pipeline.selection.request import SEEDS
from mirage_py.search.enumerate.search import SearchLimits

_RINGS = "rings"
_NUMBERS = ("int", "int | None")

# Not "²", which is a digit too; of more digits nothing can be counted.
WHOLE = re.compile(r"[0-9]{1,18}")


class Seconds(click.FloatRange):
    """More than 0 seconds; ``inf`` is no end."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


class Seed(click.types.IntParamType):
    """A whole number that generators of random numbers take."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        seed = int(super().convert(value, param, ctx))
        if not 0 <= seed < SEEDS:
            self.fail(f"{seed} is not a seed: it must be at least 0 and below 2^63.", param, ctx)
        return seed


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
