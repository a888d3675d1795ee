"""The options of an optimisation: one value, validated when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType

from mirage_py.arguments import check_type, shown
from mirage_py.errors import InputError
from mirage_py.pipeline.selection.time_budget import PLANS
from mirage_py.targets import target as target_named

AUTO = "auto"
_BACKENDS = (AUTO, "triton", "cuda")
# Seeds are below it: what torch's and numpy's generators both take.
SEEDS = 1 << 63


_TYPES: dict[str, tuple[type, ...]] = {
    "target": (str,),
    "backend": (str,),
    "effort": (str,),
    "budget": (int, float, NoneType),
    "seed": (int,),
}


def check_types(options: object, types: Mapping[str, tuple[type, ...]]) -> None:
    """InputError for a field that is of none of its types."""
    for name, kinds in types.items():
        check_type(name, getattr(options, name), kinds)


@dataclass(frozen=True, slots=True)
class Options:
    """How to optimise; the command line's options by the same names.

    ``budget`` is in seconds, of the whole optimisation. Raises InputError for a value that there
    is none of.
    """

    target: str = AUTO
    backend: str = AUTO
    effort: str = "quick"
    budget: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_types(self, _TYPES)
        if self.target != AUTO:
            target_named(self.target)
        if self.effort not in PLANS:
            raise InputError(
                f"unknown effort {shown(self.effort)}", repair="use none, quick or full"
            )
        if self.backend not in _BACKENDS:
            raise InputError(
                f"unknown back end {shown(self.backend)}", repair="use auto, triton or cuda"
            )
        if self.budget is not None and not _is_budget(self.budget):
            raise InputError(
                f"{shown(self.budget)} is no budget",
                why="it is in seconds, for the whole optimisation",
                repair="pass 0 or more, math.inf for no end, or None for what the effort takes",
            )
        if not 0 <= self.seed < SEEDS:
            raise InputError(
                f"{shown(self.seed)} is no seed", repair="pass a whole number from 0 to 2^63 - 1"
            )


def _is_budget(seconds: float) -> bool:
    try:
        return float(seconds) >= 0  # NaN is not
    except OverflowError:  # a whole number that no clock adds
        return False
