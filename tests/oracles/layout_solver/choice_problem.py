"""One choice for every value, such that the sum of what choices cost is least.

A value takes one of its candidates (layouts of a tile). Each candidate costs something by itself,
and each pair of candidates of two values that meet costs something (a layout that has to be turned
into another one). That is the partitioned Boolean quadratic problem of instruction selection and
register allocation (Scholz and Eckstein, LCTES 2002), a weighted constraint network of tables over
one and two variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from oracles.layout_solver.choice_tables import Table, eliminated, improved

# What a combination costs that cannot be emitted; the sum of all other costs stays below it.
FORBIDDEN = 10**12

# Entries of the largest table that elimination by the rule may make: some milliseconds.
_MAX_ENTRIES = 1 << 14


@dataclass(frozen=True, slots=True)
class Pair:
    """``costs[i][j]``: what it costs that value ``first`` takes its candidate ``i`` and value
    ``second`` its candidate ``j``.
    """

    first: int
    second: int
    costs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ChoiceProblem:
    """``unary[v][i]``: what it costs that value ``v``, called ``names[v]``, takes candidate ``i``.

    Several pairs may join the same two values; their costs add up. Costs are not negative.
    """

    names: tuple[str, ...]
    unary: tuple[tuple[int, ...], ...]
    pairs: tuple[Pair, ...]

    def __post_init__(self) -> None:
        assert len(self.names) == len(self.unary), "a name for every value"
        assert all(self.unary), "a candidate for every value"
        for pair in self.pairs:
            assert pair.first != pair.second, f"{self.names[pair.first]} is paired with itself"
            shape = {(len(pair.costs), len(row)) for row in pair.costs}
            assert shape == {(len(self.unary[pair.first]), len(self.unary[pair.second]))}, pair


def cost(problem: ChoiceProblem, choice: Sequence[int]) -> int:
    """What a choice, one number of a candidate for each value, costs."""
    alone = sum(costs[c] for costs, c in zip(problem.unary, choice, strict=True))
    met = sum(pair.costs[choice[pair.first]][choice[pair.second]] for pair in problem.pairs)
    return alone + met


def choose_by_rule(problem: ChoiceProblem) -> list[int]:
    """A choice without any solver: the best one where values meet as in a tree, a ladder, or any
    other graph that is thin enough; else a good one.

    Values are eliminated one after another, each into a table over its neighbours, as long as
    tables stay small. What is left is chosen by coordinate descent from several beginnings; the
    eliminated values then follow, each the best there is.
    """
    return _chosen(problem, _MAX_ENTRIES)[0]


def choose_by_elimination(problem: ChoiceProblem, max_entries: int) -> list[int] | None:
    """The best choice, or None if a table of it would have more entries than ``max_entries``."""
    choice, is_best = _chosen(problem, max_entries)
    return choice if is_best else None


def _chosen(problem: ChoiceProblem, max_entries: int) -> tuple[list[int], bool]:
    tables = [Table((v,), np.array(c, np.int64)) for v, c in enumerate(problem.unary)]
    tables += [Table((p.first, p.second), np.array(p.costs, np.int64)) for p in problem.pairs]
    sizes = [len(costs) for costs in problem.unary]
    core, steps = eliminated(tables, sizes, max_entries)
    choice = improved(core, sizes)
    for step in reversed(steps):
        choice[step.variable] = step.best(choice)
    return choice, not any(table.variables for table in core)
