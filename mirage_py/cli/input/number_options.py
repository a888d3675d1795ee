"""Numbers of the command line that click's own types let through: NaN seconds, negative seeds."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from mirage_py.pipeline.selection.request import SEEDS

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
