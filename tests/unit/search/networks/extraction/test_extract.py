"""Extraction against brute force, with sharing and circles."""

from __future__ import annotations

import itertools
import random

import pytest

from mirage_py.search.networks.extraction.circles import components
from mirage_py.search.networks.extraction.exact import exact
from mirage_py.search.networks.extraction.greedy import greedy, one_by_one
from mirage_py.search.networks.extraction.kernels import selection_us
from mirage_py.search.networks.extraction.problem import Kind, Option, Problem, reachable


def drawn(seed: int) -> Problem:
    """Libraries and views with a few circles; the first options are the program's."""
    draw = random.Random(seed)
    classes = range(7)
    options: dict[int, tuple[Option, ...]] = {0: (Option((), Kind.FREE),)}
    for class_ in classes[1:]:
        own = Option((draw.randrange(class_),), Kind.LIBRARY, draw.uniform(1, 9))
        others = [
            Option(
                tuple(c for c in draw.sample(classes, draw.randint(1, 2)) if c != class_) or (0,),
                Kind.LIBRARY,
                draw.uniform(1, 5),
            )
            for _ in range(draw.randrange(3))
        ]
        options[class_] = (own, *others)
    moved = {c: draw.uniform(0, 2) for c in classes}
    return Problem(options, moved, 1.0, (6, 5), dict.fromkeys(classes, 0))


def best_us(problem: Problem) -> float:
    """By trying every choice."""
    counts = [range(len(o)) for o in problem.options.values()]
    choices = (dict(zip(problem.options, c, strict=True)) for c in itertools.product(*counts))
    found = (reachable(problem, choice) for choice in choices)
    return min(selection_us(problem, f) for f in found if f is not None)


@pytest.mark.parametrize("seed", range(25))
def test_the_exact_extraction_finds_what_brute_force_finds(seed: int):
    problem = drawn(seed)
    first = greedy(problem)
    found, is_optimal = exact(problem, first, 5.0, gap=0.0)
    assert is_optimal
    assert found is not None
    assert selection_us(problem, found) == pytest.approx(best_us(problem), abs=1e-2)
    assert selection_us(problem, first) >= best_us(problem) - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_what_a_solver_leaves_behind_is_improved_value_by_value(seed: int):
    problem = drawn(seed)
    own = reachable(problem, problem.start)
    assert own is not None
    found = one_by_one(problem, own)
    assert reachable(problem, found) == found
    assert best_us(problem) - 1e-9 <= selection_us(problem, found) <= selection_us(problem, own)


def test_a_cheaper_way_for_a_value_that_was_left_is_taken():
    ways = (Option((0,), Kind.LIBRARY, 5.0), Option((0,), Kind.LIBRARY, 4.9))
    problem = Problem({0: (Option((), Kind.FREE),), 1: ways}, {0: 1.0, 1: 1.0}, 1.0, (1,), {})
    assert one_by_one(problem, {0: 0, 1: 0}) == {0: 0, 1: 1}
    assert one_by_one(problem, {0: 0, 1: 0}, lambda: True) == {0: 0, 1: 0}


def test_what_is_shared_is_paid_once():
    shared = Option((0,), Kind.LIBRARY, 6.0)
    views = Option((3,), Kind.VIEW)
    alone = Option((0,), Kind.LIBRARY, 4.0)
    options = {0: (Option((), Kind.FREE),), 1: (alone, views), 2: (alone, views), 3: (shared,)}
    problem = Problem(options, dict.fromkeys(options, 0.0), 0.0, (1, 2), {0: 0, 1: 0, 2: 0})
    for found in (greedy(problem), exact(problem, greedy(problem), 5.0)[0]):
        assert found is not None
        assert found[1] == found[2] == 1


def test_a_circle_is_no_selection():
    around = {0: (Option((1,), Kind.VIEW),), 1: (Option((0,), Kind.VIEW),)}
    assert reachable(Problem(around, {0: 0.0, 1: 0.0}, 0.0, (0,)), {0: 0, 1: 0}) is None


def test_a_value_that_a_reader_computes_is_not_stored():
    chain = {
        0: (Option((), Kind.FREE),),
        1: (Option((0,), Kind.FUSED),),
        2: (Option((1,), Kind.FUSED),),
    }
    problem = Problem(chain, {0: 1.0, 1: 10.0, 2: 1.0}, 2.0, (2,), {0: 0, 1: 0, 2: 0})
    own = reachable(problem, problem.start)
    assert own is not None
    assert selection_us(problem, own) == pytest.approx(1 + 2 + 1, abs=0.01)


def test_components_are_those_that_reach_each_other():
    found = components({0: [1], 1: [2], 2: [1, 3], 3: []})
    assert [sorted(c) for c in found] == [[3], [1, 2], [0]]
