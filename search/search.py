"""Searches one program for all of its kernels that are a single block graph."""

from __future__ import annotations

import time
from dataclasses import dataclass

from mirage_py.axioms.class_table import ClassTable
from mirage_py.axioms.saturate import saturate
from mirage_py.errors import MirageError
from mirage_py.search.abstraction import abstract
from mirage_py.search.counters import SearchCounters
from mirage_py.search.explore import Family, Outcome, SearchLimits, Task, explore
from mirage_py.search.work import BlockWork, WorkModel
from mirage_py.ugraph.field import DivisionByZero
from mirage_py.ugraph.program import Program

__all__ = ["Family", "SearchLimits", "SearchResult", "search"]

# Draws of the inputs: another one where two different tensors happened to agree, or a divisor to
# be zero.
_DRAWS = 8


@dataclass(frozen=True, slots=True)
class SearchResult:
    """``families`` are sorted by cost, cheapest first.

    ``exhausted``  the space of the ring was gone through: saturation and every closure ended by
                   themselves
    ``classes``    of abstract expressions; ``saturated`` if the laws had nothing to add
    ``reasons``    why there is less than could be: bounds that were hit, hits that did not survive
                   the second field, what the search cannot take
    """

    families: tuple[Family, ...]
    counters: SearchCounters
    exhausted: bool
    classes: int
    saturated: bool
    reasons: tuple[str, ...]
    seconds: float


def search(
    program: Program,
    *,
    seed: int = 0,
    limits: SearchLimits | None = None,
    work: WorkModel | None = None,
) -> SearchResult:
    """All families found, none if there are none. The same seed gives the same result everywhere.

    Does not raise: a program that has no abstract form or no value in a field gives no family and
    a reason.
    """
    started = time.perf_counter()
    limits = limits or SearchLimits()
    table: ClassTable | None = None
    outcome = Outcome()
    try:
        form = abstract(program)
        table = saturate(
            form.roots,
            form.leaf_axes,
            axes=form.axes,
            ring=limits.ring,
            rounds=limits.rounds,
            max_nodes=limits.max_nodes,
        )
        outcome = _best_draw(Task(program, form, table, limits, work or BlockWork(program)), seed)
        if not table.saturated:
            outcome.give_up(f"saturation stopped at the bound on {table.bound}")
    except (MirageError, DivisionByZero) as error:
        outcome.give_up(str(error))
    return SearchResult(
        families=tuple(sorted(outcome.families.values(), key=lambda f: f.cost_us)),
        counters=outcome.counter.freeze(),
        exhausted=outcome.exhausted,
        classes=table.classes if table else 0,
        saturated=table is not None and table.saturated,
        reasons=tuple(outcome.reasons),
        seconds=time.perf_counter() - started,
    )


def _best_draw(task: Task, seed: int) -> Outcome:
    """The outcome of the first draw of inputs that shows no coincidence, or of the last one."""
    for draw in range(_DRAWS):
        last = draw == _DRAWS - 1
        try:
            outcome = explore(task, seed * _DRAWS + draw, skip_divisions=last)
        except DivisionByZero:
            if last:
                raise
            continue
        if not outcome.refuted or last:
            return outcome
    raise AssertionError("the last draw returns")
