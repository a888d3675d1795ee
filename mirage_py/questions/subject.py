"""The subject of questions: a result by its report, with the plans that were tried for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mirage_py.errors import FormatError
from mirage_py.result import SOURCES
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program

_PARTS = ("target", "baseline", "best", "search", "candidates")
# Predictions this close are one: which plan is first says nothing.
EQUAL_US = 0.01


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan of a report; ``number`` is its place there. ``time_us`` is None where it was not
    timed.
    """

    number: int
    kind: str
    backend: str
    tiles: str
    time_us: float | None
    source: str
    passed: bool
    reason: str
    code: str

    @property
    def time_text(self) -> str:
        """Its time, and where that is from."""
        return "not timed" if self.time_us is None else f"{self.time_us:.2f} us {self.said}"

    @property
    def said(self) -> str:
        """Measured or predicted."""
        return SOURCES[self.source]

    @property
    def what(self) -> str:
        """What it is, without its number."""
        return f"{self.backend}; {self.kind}: {self.tiles}"

    def __str__(self) -> str:
        return f"plan {self.number} ({self.what})"


@dataclass(frozen=True)
class Subject:
    """``plan`` is None where the original program is the result. ``search_again`` gives the report
    of a search with the same bounds that measures nothing, in bounded time.
    """

    program: Program
    plan: Plan | None
    report: Mapping[str, Any]
    search_again: Callable[[], Mapping[str, Any]]
    where: str = ""

    def __post_init__(self) -> None:
        missing = [part for part in _PARTS if part not in self.report]
        if missing:
            raise FormatError(
                f"the report has no {', '.join(missing)}",
                where=f"{self.where}/report.json" if self.where else "",
                why="it was written by a version that did not keep it",
                repair="make the artifact again with `mirage-py superoptimize ... -o DIR`",
            )

    @cached_property
    def target(self) -> Target:
        """The GPU that the result is for."""
        return target_named(self.report["target"])

    @cached_property
    def tried(self) -> tuple[Tried, ...]:
        """Every plan of the report, in its order."""
        return tried_of(self.report)

    @cached_property
    def winner(self) -> Tried | None:
        """The plan that won, among those that were tried."""
        if self.plan is None:
            return None
        best = self.report["best"]
        same = [t for t in self.tried if t.time_us == best["time_us"] and t.passed]
        return next((t for t in same if t.backend == self.plan.backend), None)

    @property
    def best_us(self) -> float:
        """The time of what won."""
        return float(self.report["best"]["time_us"])

    @property
    def best_text(self) -> str:
        """What won, with its time."""
        best = self.report["best"]
        said = SOURCES[best["source"]]
        name = self.winner or best["name"]
        return f"{name}, {self.best_us:.2f} us {said}"

    def beside_the_best(self, time_us: float) -> str:
        """How a time compares with that of what won."""
        if abs(time_us - self.best_us) < EQUAL_US:
            return f"as fast as the best, {self.best_us:.2f} us"
        more = time_us / self.best_us - 1.0
        word = "more" if more > 0 else "less"
        return f"{abs(more):.1%} {word} than the {self.best_us:.2f} us of the best"


def tried_of(report: Mapping[str, Any]) -> tuple[Tried, ...]:
    """The plans of a report."""
    return tuple(
        Tried(
            number,
            c["kind"],
            c["backend"],
            c["tiles"],
            c["time_us"],
            c["source"],
            c["passed"],
            c["reason"],
            c.get("code", ""),
        )
        for number, c in enumerate(report["candidates"])
    )
