"""Greedy extraction: the cheapest way for each class alone, then one shared operator at a time.

A choice for each class alone never takes one operator that computes several values (two products as
one, then a split), as each of the values would pay for all of it. So every operator with several
readers is then tried for all values that can be had of it at once, and kept where the whole gets
cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from mirage_py.search.networks.extraction.kernels import selection_us
from mirage_py.search.networks.extraction.problem import (
    Kind,
    Option,
    Problem,
    Selection,
    operator_us,
    reachable,
)

_PASSES = 3


def greedy(problem: Problem, should_stop: Callable[[], bool] = lambda: False) -> Selection:
    """A selection that costs no more than the program's own."""
    best = reachable(problem, problem.start)
    assert best is not None, "a program has no circle"
    best_us = selection_us(problem, best)
    alone = cheapest_alone(problem)
    for choice in (alone, {**alone, **problem.start}):
        found, found_us = _improved(problem, choice, should_stop)
        if found is not None and found_us < best_us:
            best, best_us = found, found_us
    return best


def cheapest_alone(problem: Problem) -> dict[int, int]:
    """By the time of each class with everything that it needs, shared or not."""
    best: dict[int, float] = {}
    choice: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for class_, options in problem.options.items():
            for number, option in enumerate(options):
                us = sum(
                    (best.get(c, inf) for c in option.children), _own_us(problem, class_, option)
                )
                if us < best.get(class_, inf) - 1e-9:
                    best[class_], choice[class_], changed = us, number, True
    return choice


def one_by_one(
    problem: Problem, selection: Selection, should_stop: Callable[[], bool] = lambda: False
) -> Selection:
    """A selection with another way for one value after the other, where the whole gets cheaper:
    what a solver that is cut short leaves behind, as a batch norm that is in no weight.
    """
    choice = {**cheapest_alone(problem), **selection}
    best, best_us = selection, selection_us(problem, selection)
    for class_ in reversed(list(selection)):
        if class_ not in best:
            continue
        for number in range(len(problem.options[class_])):
            if should_stop():
                return best
            if number == choice[class_]:
                continue
            found = reachable(problem, {**choice, class_: number})
            us = inf if found is None else selection_us(problem, found)
            if found is not None and us < best_us - 1e-9:
                choice[class_], best, best_us = number, found, us
    return best


def _own_us(problem: Problem, class_: int, option: Option) -> float:
    own_us = option.time_us + operator_us(option)
    return own_us + (problem.moved_us[class_] if option.kind is Kind.FUSED else 0.0)


def _improved(
    problem: Problem, choice: dict[int, int], should_stop: Callable[[], bool]
) -> tuple[Selection | None, float]:
    """Take shared operators one after the other while that helps."""
    found = reachable(problem, choice)
    if found is None:
        return None, inf
    best, best_us = found, selection_us(problem, found)
    for _ in range(_PASSES):
        before = best_us
        for switched in _shared(problem):
            if should_stop():
                return best, best_us
            trial = {**choice, **switched}
            if trial == choice:
                continue
            found = reachable(problem, trial)
            us = inf if found is None else selection_us(problem, found)
            if found is not None and us < best_us - 1e-9:
                choice, best, best_us = trial, found, us
        if best_us == before:
            break
    return best, best_us


def _shared(problem: Problem) -> list[dict[int, int]]:
    """For each class that several others can be had of by a view: those ways."""
    ways: dict[int, dict[int, int]] = {}
    for class_, options in problem.options.items():
        for number, option in enumerate(options):
            if option.kind is Kind.VIEW and len(option.children) == 1:
                ways.setdefault(option.children[0], {}).setdefault(class_, number)
    return [ways[source] for source in sorted(ways) if len(ways[source]) > 1]
