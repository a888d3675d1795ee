"""The best choice of layouts, by OR-tools' CP-SAT; without it by the rule.

Mirage (OSDI'25, section 6) asks Z3 for one innermost dimension for each tensor. Here a candidate is
a whole layout, and the answer comes with a proof of its optimality.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from oracles.layout_solver.choice_problem import (
    ChoiceProblem,
    choose_by_elimination,
    choose_by_rule,
    cost,
)
from oracles.layout_solver.layout_problem import layout_problem

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import Layouts, choose_layouts
from mirage_py.codegen.cuda.layout.layout_modes import with_free
from mirage_py.codegen.cuda.layout.staging import staged_loads
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# Entries of the largest table of elimination; problems that need larger ones go to CP-SAT.
_MAX_ENTRIES = 1 << 16
_SOLVER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Solution:
    """A choice, what it costs, and whether it is proved that none costs less."""

    choice: tuple[int, ...]
    cost: int
    is_optimal: bool


def solved_layouts(facts: BlockAnalysis, options: LaunchConfig) -> Layouts:
    """The rule's layouts with the best ones for what is free; exact by elimination where that is
    cheap, which every kernel so far was.
    """
    ruled = choose_layouts(facts, options)
    found = layout_problem(facts, options, ruled, staged_loads(facts, {}))
    choice = choose_by_elimination(found.problem, _MAX_ENTRIES)
    if choice is None:
        choice = solve(found.problem, _SOLVER_SECONDS)
    return with_free(facts, ruled, found.chosen(choice))


def has_solver() -> bool:
    """Whether OR-tools is there."""
    return find_spec("ortools") is not None


def solve(problem: ChoiceProblem, seconds: float) -> list[int]:
    """The best choice found within ``seconds`` of the solver's own count, the same on every run."""
    return list(solution(problem, seconds).choice)


def solution(problem: ChoiceProblem, seconds: float) -> Solution:
    """The same with its proof. Where OR-tools is missing it is the rule's choice, unproved."""
    ruled = choose_by_rule(problem)
    known = Solution(tuple(ruled), cost(problem, ruled), is_optimal=False)
    return _solved(problem, seconds, known) if has_solver() else known


def _solved(problem: ChoiceProblem, seconds: float, known: Solution) -> Solution:
    """``known`` is where the solver begins.

    A Boolean for each candidate, one for each entry of a pair's table, rows and columns of which
    sum up to the candidates' own: the local polytope, whose relaxation is exact on trees.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    takes = [[model.new_bool_var("") for _ in costs] for costs in problem.unary]
    terms = []
    for value, costs in enumerate(problem.unary):
        model.add_exactly_one(takes[value])
        terms += [c * t for c, t in zip(costs, takes[value], strict=True) if c]
        for number, taken in enumerate(takes[value]):
            model.add_hint(taken, number == known.choice[value])
    for pair in problem.pairs:
        both = [[model.new_bool_var("") for _ in row] for row in pair.costs]
        for row, taken in zip(both, takes[pair.first], strict=True):
            model.add(sum(row) == taken)
        for column, taken in zip(zip(*both, strict=True), takes[pair.second], strict=True):
            model.add(sum(column) == taken)
        for row, costs in zip(both, pair.costs, strict=True):
            terms += [c * b for c, b in zip(costs, row, strict=True) if c]
    model.minimize(sum(terms))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    # A count of operations, not of time: the same answer on a busy machine.
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return known
    choice = [next(n for n, t in enumerate(row) if solver.boolean_value(t)) for row in takes]
    found = Solution(tuple(choice), cost(problem, choice), status == cp_model.OPTIMAL)
    return found if found.is_optimal or found.cost < known.cost else known
