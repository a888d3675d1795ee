"""Tables of costs over variables: bucket elimination (Dechter, 1999) and coordinate descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.int64]

# Sweeps of coordinate descent; each lowers the cost, and few suffice.
_MAX_SWEEPS = 50


@dataclass(frozen=True, slots=True)
class Table:
    """``costs`` has an axis for each of ``variables``, which ascend or are in any other order."""

    variables: tuple[int, ...]
    costs: Costs

    def over(self, variables: tuple[int, ...]) -> Costs:
        """The costs with an axis for each of ``variables``, of extent 1 where there is none."""
        order = sorted(range(len(self.variables)), key=lambda n: variables.index(self.variables[n]))
        extents = {v: self.costs.shape[n] for n, v in enumerate(self.variables)}
        return self.costs.transpose(order).reshape([extents.get(v, 1) for v in variables])

    def row(self, variable: int, choice: Sequence[int]) -> Costs:
        """The costs along ``variable`` where all others are as in ``choice``."""
        index = tuple(slice(None) if v == variable else choice[v] for v in self.variables)
        return self.costs[index]


@dataclass(frozen=True, slots=True)
class Step:
    """An eliminated variable with the sum of the tables that it was in."""

    variable: int
    table: Table

    def best(self, choice: Sequence[int]) -> int:
        """Its best value where its neighbours are as in ``choice``; the first of several."""
        return int(self.table.row(self.variable, choice).argmin())


def joined(tables: Sequence[Table]) -> Table:
    """The sum of tables, over all variables of any."""
    variables = tuple(sorted(dict.fromkeys(v for t in tables for v in t.variables)))
    total = tables[0].over(variables)
    for table in tables[1:]:
        total = total + table.over(variables)
    return Table(variables, total)


def eliminated(
    tables: Sequence[Table], sizes: Sequence[int], max_entries: int
) -> tuple[list[Table], list[Step]]:
    """What is left of the tables, and the eliminated variables in order.

    The next variable is always the one whose table has the fewest entries; it ends with no
    variable left or when that table would have more than ``max_entries``.
    """
    left = list(tables)
    steps: list[Step] = []
    waiting = list(range(len(sizes)))
    while waiting:
        variable = min(waiting, key=lambda v: (_entries(left, sizes, v), v))
        if _entries(left, sizes, variable) > max_entries:
            break
        waiting.remove(variable)
        table = joined([t for t in left if variable in t.variables])
        left = [t for t in left if variable not in t.variables]
        steps.append(Step(variable, table))
        axis = table.variables.index(variable)
        others = tuple(v for v in table.variables if v != variable)
        left.append(Table(others, table.costs.min(axis=axis)))
    return left, steps


def _entries(tables: Sequence[Table], sizes: Sequence[int], variable: int) -> int:
    met = dict.fromkeys(v for t in tables if variable in t.variables for v in t.variables)
    return prod(sizes[v] for v in met)


def improved(tables: Sequence[Table], sizes: Sequence[int]) -> list[int]:
    """A value for every variable: the best that coordinate descent finds from several beginnings.

    One begins with what is best for each variable alone, the others with one variable at one of
    its values, its neighbours chosen after it and theirs after them. Variables in no table are 0.
    """
    met = [[t for t in tables if v in t.variables] for v in range(len(sizes))]
    live = [v for v in range(len(sizes)) if met[v]]
    best = _descended([0] * len(sizes), live, met)
    for anchor in live:
        for value in range(sizes[anchor]):
            begun = _spread(anchor, value, live, met, len(sizes))
            found = _descended(begun, live, met)
            if _cost(tables, found) < _cost(tables, best):
                best = found
    return best


def _cost(tables: Sequence[Table], choice: Sequence[int]) -> int:
    return sum(int(t.costs[tuple(choice[v] for v in t.variables)]) for t in tables)


def _spread(
    anchor: int, value: int, live: Sequence[int], met: Sequence[Sequence[Table]], count: int
) -> list[int]:
    """Values in the order in which they are reached from the anchor; each the best for those that
    are chosen already, where what is not chosen yet costs the least it can.
    """
    chosen = {anchor: value}
    queue = [anchor, *(v for v in live if v != anchor)]
    seen = dict.fromkeys([anchor])
    while queue:
        variable = queue.pop(0)
        if variable not in chosen:
            rows = [_least(t, variable, chosen) for t in met[variable]]
            chosen[variable] = int(np.sum(rows, axis=0).argmin())
        near = dict.fromkeys(v for t in met[variable] for v in t.variables if v not in seen)
        seen.update(near)
        queue = [*near, *(v for v in queue if v not in near)]
    return [chosen.get(v, 0) for v in range(count)]


def _least(table: Table, variable: int, chosen: dict[int, int]) -> Costs:
    index = tuple(
        slice(chosen[v], chosen[v] + 1) if v in chosen else slice(None) for v in table.variables
    )
    axes = tuple(n for n, v in enumerate(table.variables) if v != variable)
    least: Costs = table.costs[index].min(axis=axes)
    return least


def _descended(
    begun: Sequence[int], live: Sequence[int], met: Sequence[Sequence[Table]]
) -> list[int]:
    choice = list(begun)
    for _ in range(_MAX_SWEEPS):
        before = list(choice)
        for variable in live:
            row = np.sum([t.row(variable, choice) for t in met[variable]], axis=0)
            if row[choice[variable]] > row.min():
                choice[variable] = int(row.argmin())
        if choice == before:
            break
    return choice
