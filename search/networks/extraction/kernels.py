"""The kernels that a selection runs as, and the sum of their times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mirage_py.search.networks.extraction.problem import (
    Kind,
    Option,
    Problem,
    Selection,
    chosen,
    operator_us,
)


def selection_us(problem: Problem, selection: Selection) -> float:
    """Microseconds of all kernels of a selection, which has operands before their readers."""
    stored = stored_values(problem, selection)
    total = 0.0
    for class_, option in chosen(problem, selection):
        total += operator_us(option)
        if option.kind is Kind.LIBRARY:
            total += option.time_us + _copies_us(problem, selection, option)
        elif option.kind is Kind.FUSED:
            read = dict.fromkeys(option.children)
            total += sum(problem.moved_us[c] for c in read if stored[c])
            total += problem.launch_us + problem.moved_us[class_] if stored[class_] else 0.0
    return total


def stored_values(problem: Problem, selection: Selection) -> Mapping[int, bool]:
    """Whether each value is in memory: operands and results of libraries, outputs, and what several
    kernels read.
    """
    readers = Counter(c for _, o in chosen(problem, selection) for c in dict.fromkeys(o.children))
    stored = dict.fromkeys(selection, False)
    for root in dict.fromkeys(problem.outputs):
        stored[root] = True
    for class_, option in reversed(list(chosen(problem, selection))):
        if option.kind in (Kind.LIBRARY, Kind.FREE) or readers[class_] > 1:
            stored[class_] = stored[class_] or option.kind is not Kind.VIEW
        wanted = option.kind is Kind.LIBRARY or (option.kind is Kind.VIEW and stored[class_])
        for child in option.children if wanted else ():
            stored[child] = True
    for class_, option in chosen(problem, selection):
        if option.kind is Kind.VIEW:
            stored[class_] = stored[class_] or all(stored[c] for c in option.children)
    return stored


def _copies_us(problem: Problem, selection: Selection, option: Option) -> float:
    """Strided operands of a library operator that wants them packed are copied first."""
    if not option.packed:
        return 0.0
    strided = [c for c in option.children if problem.options[c][selection[c]].is_strided]
    return sum(problem.launch_us + 2 * problem.moved_us[c] for c in strided)
