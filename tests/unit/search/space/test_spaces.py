from __future__ import annotations

from math import prod

import pytest
from adversarial.large_programs import large_program
from unit.search import programs
from unit.search.kernels import FACTORED

from mirage_py.search.closure.hits import draw
from mirage_py.search.enumerate.search import search
from mirage_py.search.space.spaces import (
    ITERATIONS,
    configurations,
    representative_space,
    rounding_space,
)
from mirage_py.search.space.values import Values, evaluate
from mirage_py.ugraph.field import FIELDS

ALL = {**programs.PROGRAMS, **programs.MORE}


@pytest.mark.parametrize("name", ALL)
def test_reduced_dimensions_have_sizes_of_their_own(name):
    program = ALL[name]()
    space = representative_space(program)
    sizes = [space.extent(d) for d in space.loopable]
    assert len(sizes) == len(dict.fromkeys(sizes))
    other = representative_space(program, 1)
    assert all(space.tiles[d] != other.tiles[d] for d in space.dims)


@pytest.mark.parametrize("name", ALL)
def test_values_stay_small(name):
    program = ALL[name]()
    values, _ = draw(program, representative_space(program), FIELDS[0], 0)
    assert sum(a.size for a in values.arrays) < 200_000


@pytest.mark.parametrize("seed", [5, 13, 46, 52])
def test_values_of_many_dimensions_stay_small(seed):
    # With sizes of their own for all, these had up to 14 million elements a trial.
    program = large_program(seed)
    for number in range(2):
        space = representative_space(program, number)
        largest = max(prod(space.extent(d) for d in n.dims) for n in program.nodes)
        assert largest * space.trials <= 1 << 16
        assert all(space.tiles[d] > 1 for d in space.loopable)


def test_of_many_dimensions_those_whose_size_counts_differ_in_it():
    s = programs.Spec("means", a=64, b=64, c=64, d=64, e=64)
    means = [s.b.mean(s.load("X", "abcde"), [d]) for d in "bcd"]
    total = s.b.sum(s.b.apply("add", s.b.apply("add", *means[:2]), means[2]), "e")
    s.output("Y", s.b.apply("mul", total, s.b.const(6.0)), "abcd")
    program = s.b.build()
    sizes = [[representative_space(program, n).extent(d) for d in "bcde"] for n in range(2)]
    assert sizes == [[4, 8, 10, 4], [8, 10, 14, 4]]


def test_a_size_is_no_constant_of_the_program():
    s = programs.Spec("six", b=4, d=64)
    s.output("Y", s.b.apply("div", s.b.sum(s.load("X", "bd"), "d"), s.b.const(6.0)), "b")
    space = representative_space(s.b.build())
    assert space.extent("d") != 6
    assert space.extent("d") == ITERATIONS * space.tiles["d"]


def test_an_axis_pair_for_each_dimension_after_the_trials():
    space = representative_space(programs.rmsnorm_matmul())
    assert space.axes == {"b": (1, 2), "d": (3, 4), "n": (5, 6)}
    found = space.shape(["b", "d"])
    assert found == (space.trials, 1, space.tiles["b"], ITERATIONS, space.tiles["d"], 1, 1)
    assert space.tile_dims(space.shape(["b", "d"])) == ("b", "d")


def test_functions_made_of_pieces_take_many_trials():
    # relu(x) is x at every second point: on one row of three the two would look the same.
    assert representative_space(programs.clamped_maximum()).trials > 8
    assert representative_space(programs.gated_mlp()).trials == 1


def test_roots_take_as_many_trials_as_tell_both_signs_apart():
    # sqrt(x * x) is x at every second point.
    space = representative_space(programs.rmsnorm_matmul())
    assert space.trials * space.tiles["b"] >= 16
    s = programs.Spec("magnitude", d=64)
    total = s.b.sum(s.load("X", "d"), "d")
    s.output("Y", s.b.apply("sqrt", s.b.apply("square", total)), "")
    program = s.b.build()
    assert representative_space(program).trials == 16
    for seed in range(6):
        for family in search(program, seed=seed, limits=FACTORED).families:
            ops = [n.op for k in family.ugraph.kernels for n in k.nodes]
            assert "sqrt" in ops


def test_configurations_choose_among_reduced_dimensions():
    found = [c.looped for c in configurations(programs.attention(), 1)]
    assert found == [(), ("s",), ("d",)]
    assert ("s", "d") in [c.looped for c in configurations(programs.attention(), 2)]


def test_a_dimension_of_one_point_is_not_looped():
    found = [c.looped for c in configurations(programs.attention(2, 256, 4096, 1, 64), 2)]
    assert found == [(), ("s",)]


def test_equal_values_have_one_number():
    program = programs.rmsnorm_matmul()
    values = Values(representative_space(program), FIELDS[0], 0)
    nodes = evaluate(program, values)
    done = values.evaluations
    assert evaluate(program, values) == nodes
    assert values.evaluations == done
    x = nodes[0]
    assert values.apply("mul", (x, x)) == values.apply("square", (x,))


def test_a_power_of_a_constant_keeps_its_laws():
    program = programs.row_softmax()
    values = Values(representative_space(program), FIELDS[0], 0)
    x = values.leaf(program.nodes[0])
    cube = values.apply("pow", (x, values.scalar("const", "3")))
    assert cube == values.apply("mul", (x, values.apply("square", (x,))))


def test_masks_that_hide_a_whole_row_are_drawn_again():
    # A row of causal scores without a one would divide by zero.
    program = programs.causal_attention()
    for seed in range(6):
        draw(program, representative_space(program), FIELDS[0], seed)


def test_rounding_is_looked_at_on_short_values():
    program = large_program(132)
    space = representative_space(program)
    short = rounding_space(program, space)
    largest = max(prod(short.extent(d) for d in n.dims) for n in program.nodes)
    assert largest <= 1 << 11
    assert short.loopable == space.loopable
    small = representative_space(programs.attention())
    assert rounding_space(programs.attention(), small) == small
