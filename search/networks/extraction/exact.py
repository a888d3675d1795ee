"""Exact extraction: the cheapest selection of an extraction problem, by OR-tools' CP-SAT.

Sharing is counted once, and classes of a circle get positions, so that no value needs itself. One
worker, a fixed seed and a limit in the solver's own deterministic time: equal problems have equal
answers everywhere.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from mirage_py.search.networks.extraction.circles import components
from mirage_py.search.networks.extraction.greedy import cheapest_alone
from mirage_py.search.networks.extraction.problem import (
    Kind,
    Option,
    Problem,
    Selection,
    operator_us,
    reachable,
)

# The share of the cost within which a selection counts as the cheapest.
GAP = 1e-3
_UNITS = 10_000  # tenths of a nanosecond in the solver's integers


def is_available() -> bool:
    """Whether OR-tools is installed (the extra ``graph``)."""
    return importlib.util.find_spec("ortools") is not None


def exact(
    problem: Problem, hint: Selection, effort: float, gap: float = GAP
) -> tuple[Selection | None, bool]:
    """A selection, None where none was found within ``effort``, and whether it is proved that none
    is cheaper by more than the share ``gap``.

    ``effort`` is in the solver's deterministic seconds. What is computed once, of constants, costs
    nothing whichever way: it is not part of the problem that is solved.
    """
    from ortools.sat.python import cp_model

    model = _Model(problem, cp_model.CpModel())
    model.hint(hint)
    solver: Any = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = effort
    solver.parameters.relative_gap_limit = gap
    status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, False
    choice = cheapest_alone(problem)
    choice |= {c: n for (c, n), taken in model.taken.items() if solver.value(taken)}
    return reachable(problem, choice), status == cp_model.OPTIMAL


class _Model:
    """``taken`` options, ``needed`` classes, ``stored`` values."""

    def __init__(self, problem: Problem, model: Any) -> None:
        self.model, self.problem = model, problem
        classes = {c: o for c, o in problem.options.items() if not _is_given(o)}
        self.taken = {
            (c, n): model.new_bool_var("") for c in classes for n in range(len(classes[c]))
        }
        self.needed = {c: model.new_bool_var("") for c in classes}
        self.stored = {c: model.new_bool_var("") for c in classes}
        self._cost: list[Any] = []
        for root in dict.fromkeys(o for o in problem.outputs if o in classes):
            model.add(self.needed[root] == 1)
            model.add(self.stored[root] == 1)
        place = _places(classes, model)
        for class_, options in classes.items():
            ways = [self.taken[class_, n] for n in range(len(options))]
            model.add(sum(ways) == self.needed[class_])
            for n, option in enumerate(options):
                for child in self._children(option):
                    model.add_implication(ways[n], self.needed[child])
                    if class_ in place and child in place and place[class_][0] == place[child][0]:
                        later = place[class_][1] >= place[child][1] + 1
                        model.add(later).only_enforce_if(ways[n])
                self._option(class_, n)
        model.minimize(sum(self._cost))

    def hint(self, selection: Selection) -> None:
        """Begin with a known selection."""
        for (class_, n), taken in self.taken.items():
            self.model.add_hint(taken, selection.get(class_) == n)

    def _option(self, class_: int, number: int) -> None:
        option, taken = self.problem.options[class_][number], self.taken[class_, number]
        self._pay(taken, round(operator_us(option) * _UNITS))
        children = self._children(option)
        if option.kind is Kind.LIBRARY:
            self.model.add_implication(taken, self.stored[class_])
            self._pay(taken, round(option.time_us * _UNITS))
            for child in children:
                self.model.add_implication(taken, self.stored[child])
                self._copy(taken, child, packed=option.packed)
        elif option.kind is Kind.FUSED:
            write_us = self.problem.launch_us + self.problem.moved_us[class_]
            self._pay_where([taken, self.stored[class_]], write_us)
            for child in children:
                self._pay_where([taken, self.stored[child]], self.problem.moved_us[child])
            given = [c for c in dict.fromkeys(option.children) if c not in self.needed]
            self._pay(taken, round(sum(self.problem.moved_us[c] for c in given) * _UNITS))
        elif option.kind is Kind.VIEW:
            if len(children) < len(dict.fromkeys(option.children)):
                self.model.add_implication(taken, self.stored[class_])
            for child in children:
                same = self.stored[class_] == self.stored[child]
                self.model.add(same).only_enforce_if(taken)

    def _children(self, option: Option) -> list[int]:
        """Operands that are not given, each once."""
        return [c for c in dict.fromkeys(option.children) if c in self.needed]

    def _copy(self, taken: Any, child: int, *, packed: bool) -> None:
        for n, view in enumerate(self.problem.options[child] if packed else ()):
            if view.is_strided:
                copy_us = self.problem.launch_us + 2 * self.problem.moved_us[child]
                self._pay_where([taken, self.taken[child, n]], copy_us)

    def _pay_where(self, conditions: list[Any], us: float) -> None:
        paid = self.model.new_bool_var("")
        self.model.add(paid >= sum(conditions) - (len(conditions) - 1))
        self._pay(paid, round(us * _UNITS))

    def _pay(self, condition: Any, units: int) -> None:
        if units:
            self._cost.append(condition * units)


def _is_given(options: tuple[Option, ...]) -> bool:
    """Whether a value is an input, or follows from constants."""
    return all(option.kind is Kind.FREE for option in options)


def _places(classes: Mapping[int, tuple[Option, ...]], model: Any) -> Mapping[int, tuple[int, Any]]:
    """For classes that may need themselves: their circle, and a position in it."""
    children = {
        c: [child for option in options for child in option.children if child in classes]
        for c, options in classes.items()
    }
    places = {}
    for number, component in enumerate(components(children)):
        for class_ in component if len(component) > 1 else ():
            places[class_] = (number, model.new_int_var(0, len(component), ""))
    return places
