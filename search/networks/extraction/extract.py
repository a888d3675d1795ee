"""Extraction: the cheapest graph of an e-graph, exactly where OR-tools is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mirage_py.search.networks.extraction.exact import exact, is_available
from mirage_py.search.networks.extraction.greedy import greedy, one_by_one
from mirage_py.search.networks.extraction.kernels import selection_us
from mirage_py.search.networks.extraction.problem import Problem, Selection


@dataclass(frozen=True, slots=True)
class Extraction:
    """``how`` says who found it, in words."""

    selection: Selection
    time_us: float
    how: str


def extract(
    problem: Problem, effort: float, should_stop: Callable[[], bool] = lambda: False
) -> Extraction:
    """The best selection of the greedy and of the exact extraction, by the kernels they run as."""
    first = greedy(problem, should_stop)
    best = Extraction(first, selection_us(problem, first), "greedy")
    if not is_available():
        return Extraction(first, best.time_us, "greedy (OR-tools is not installed)")
    if should_stop():
        return Extraction(first, best.time_us, "greedy (out of time)")
    found, is_optimal = exact(problem, first, effort)
    if found is None:
        return Extraction(first, best.time_us, "greedy (the solver found nothing in its limit)")
    how = "exact, proved within 0.1 %" if is_optimal else "exact, cut short by its limit"
    if not is_optimal:
        found = one_by_one(problem, found, should_stop)
    time_us = selection_us(problem, found)
    return Extraction(found, time_us, how) if time_us <= best.time_us else best
