"""Options that several commands have, and numbers that click's own types let through: NaN seconds,
negative seeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import click

from mirage_py.pipeline.selection.request import SEEDS
from mirage_py.targets import ALL_TARGETS

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

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


def target_option(
    what: str = "GPU to optimise for; auto is the one in this machine, else h200.",
) -> Decorator:
    """``--target``."""
    return click.option(
        "--target",
        type=click.Choice(["auto", *(t.name for t in ALL_TARGETS)], case_sensitive=False),
        default="auto",
        show_default=True,
        help=what,
    )


def limits_option(what: str = "Bound of the search, as in max_tensors=6000.") -> Decorator:
    """``--limit``, as the argument ``limits``."""
    return click.option("--limit", "limits", multiple=True, metavar="NAME=N", help=what)


seed_option = click.option(
    "--seed", type=Seed(), default=0, show_default=True, help="Seed of every random choice."
)
inputs_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=dtype[d0,d1,...]",
    help="An argument of the function; repeat for each.",
)
sizes_option = click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", help="Size of the spec, as in B=16."
)
json_option = click.option("--json", is_flag=True, help="Print one JSON document instead of text.")
