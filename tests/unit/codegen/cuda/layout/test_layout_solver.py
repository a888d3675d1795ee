from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.layout_solver import layout_solver
from oracles.layout_solver.choice_problem import (
    FORBIDDEN,
    ChoiceProblem,
    Pair,
    choose_by_elimination,
    choose_by_rule,
    cost,
)
from oracles.layout_solver.layout_solver import solution, solve


def problem(draw, sizes, edges):
    """Random costs: for a pair nothing where both take the same number, as for equal layouts."""
    unary = [tuple(draw.randrange(20) for _ in range(size)) for size in sizes]
    pairs = []
    for a, b in edges:
        rows = [[draw.randrange(30) * (i != j) for j in range(sizes[b])] for i in range(sizes[a])]
        pairs.append(Pair(a, b, tuple(map(tuple, rows))))
    return ChoiceProblem(tuple(f"v{n}" for n in range(len(sizes))), tuple(unary), tuple(pairs))


def least(given_problem):
    choices = product(*(range(len(costs)) for costs in given_problem.unary))
    return min(cost(given_problem, choice) for choice in choices)


def small(seed):
    draw = random.Random(seed)
    sizes = [draw.randrange(1, 4) for _ in range(draw.randrange(1, 7))]
    ends = range(len(sizes))
    edges = [draw.sample(ends, 2) for _ in range(draw.randrange(8))] if len(sizes) > 1 else []
    return problem(draw, sizes, edges)


def dense(seed, values=14, candidates=4):
    """More pairs than elimination can do with small tables."""
    draw = random.Random(seed)
    edges = [(a, b) for a in range(values) for b in range(a) if draw.random() < 0.6]
    return problem(draw, [candidates] * values, edges)


@given(st.integers(0, 10**6))
@settings(max_examples=50)
def test_elimination_finds_the_least(seed):
    given_problem = small(seed)
    choice = choose_by_elimination(given_problem, 1 << 12)
    assert choice is not None
    assert cost(given_problem, choice) == least(given_problem)


@given(st.integers(0, 10**6), st.integers(2, 60))
@settings(max_examples=20)
def test_on_trees_the_rule_is_exact(seed, count):
    draw = random.Random(seed)
    edges = [(n, draw.randrange(n)) for n in range(1, count)]
    tree = problem(draw, [draw.randrange(1, 6) for _ in range(count)], edges)
    by_tables = choose_by_elimination(tree, 25)  # no table over more than two values
    assert by_tables is not None
    assert cost(tree, choose_by_rule(tree)) == cost(tree, by_tables)


def test_the_solver_agrees_and_proves_it():
    pytest.importorskip("ortools")
    for seed in range(25):
        given_problem = small(seed)
        found = solution(given_problem, seconds=2)
        assert found.is_optimal
        assert found.cost == cost(given_problem, found.choice) == least(given_problem)
        assert solve(given_problem, seconds=2) == list(found.choice)


def test_where_the_rule_is_not_exact_it_is_near():
    pytest.importorskip("ortools")
    ruled = solved = 0
    for seed in range(4):
        given_problem = dense(seed, values=9, candidates=4)
        begun = choose_by_elimination(given_problem, 64)
        assert begun is None
        found = solution(given_problem, seconds=5)
        assert found.is_optimal
        exact = choose_by_elimination(given_problem, 1 << 18)
        assert exact is not None
        assert found.cost == cost(given_problem, exact)
        rule = cost(given_problem, choose_by_rule(given_problem))
        assert rule >= found.cost
        ruled, solved = ruled + rule, solved + found.cost
    assert ruled <= 1.02 * solved


def test_the_rule_by_descent_alone_is_near_the_least():
    from oracles.layout_solver import choice_problem

    ruled = best = 0
    for seed in range(10):
        given_problem = dense(seed, values=8, candidates=3)
        choice, is_best = choice_problem._chosen(given_problem, 0)
        assert not is_best
        ruled += cost(given_problem, choice)
        best += least(given_problem)
    assert best <= ruled <= 1.05 * best


def test_the_same_choice_each_time():
    given_problem = dense(3)
    assert choose_by_rule(given_problem) == choose_by_rule(given_problem)


def test_without_the_solver_the_rule_decides(monkeypatch):
    monkeypatch.setattr(layout_solver, "has_solver", lambda: False)
    given_problem = small(5)
    found = solution(given_problem, seconds=1)
    assert list(found.choice) == choose_by_rule(given_problem)
    assert not found.is_optimal


def test_what_is_forbidden_is_not_taken():
    """The cheap candidates do not go together."""
    rows = ((FORBIDDEN, 1), (1, 1))
    pairs = tuple(Pair(a, b, rows) for a, b in ((0, 1), (1, 2), (2, 0)))
    given_problem = ChoiceProblem(("a", "b", "c"), ((0, 5),) * 3, pairs)
    assert cost(given_problem, choose_by_rule(given_problem)) == 13
    assert cost(given_problem, solve(given_problem, seconds=1)) == 13


def test_no_values():
    nothing = ChoiceProblem((), (), ())
    assert choose_by_rule(nothing) == []
    assert solve(nothing, seconds=1) == []


def test_tables_of_a_wrong_shape_are_refused():
    with pytest.raises(AssertionError, match="Pair"):
        ChoiceProblem(("a", "b"), ((0, 0), (0,)), (Pair(0, 1, ((1, 2),)),))
