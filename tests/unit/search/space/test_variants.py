from __future__ import annotations

from dataclasses import replace

import pytest
from unit.search import programs

from mirage_py.search.space.variants import MIN_SPLIT_EXTENT, nominal_splits, variants
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.rewrite.split_dim import splits_of
from mirage_py.verify.field_test.programs import compare_programs


@pytest.mark.parametrize(
    ("size", "splits"),
    [
        (4096, 8),
        (64, 8),
        (700, 7),
        (66, 6),
        (65, 5),
        (999, 3),
        (74, 2),
        (10007, None),
        (77 * 13, 7),
    ],
)
def test_the_nominal_splits_divide_the_size(size, splits):
    assert nominal_splits(size) == splits


def test_a_prime_or_short_dimension_is_not_split():
    assert nominal_splits(MIN_SPLIT_EXTENT - 1) is None
    assert nominal_splits(MIN_SPLIT_EXTENT) is not None
    assert nominal_splits(67) is None
    assert [v.split for v in variants(programs.rmsnorm_matmul(d=4093))] == [None]
    assert [v.split for v in variants(programs.rmsnorm_matmul(d=32))] == [None]


def test_each_reduced_dimension_is_split_in_turn():
    program = programs.attention()
    whole, *split = variants(program)
    assert whole.program is program
    assert whole.splits == ()
    assert [(v.split, v.splits) for v in split] == [("s", ("s_part",)), ("d", ("d_part",))]
    assert [splits_of(v.program, v.split) for v in split] == [8, 8]
    assert [str(v) for v in (whole, *split)] == ["whole", "split s", "split d"]
    for variant in split:
        assert compare_programs(program, variant.program, trials=1, seed=0).equal


def test_what_nothing_reduces_is_not_split():
    assert all(v.split != "n" for v in variants(programs.rmsnorm_matmul()))


def test_a_name_that_is_taken_is_not_taken_again():
    s = programs.Spec("a_dimension", b=4, d=64, d_part=4)
    total = s.b.sum(s.load("X", "bd"), "d")
    s.b.input("Z", [4], F16)
    scaled = s.b.apply("mul", total, s.b.load("Z", ["d_part"]))
    s.b.output("Y", scaled, ["b", "d_part"], F16)
    assert [v.split for v in variants(s.b.build())] == [None]


def test_a_tensor_may_have_the_name_too():
    s = programs.Spec("a_tensor", b=4, d=64)
    s.output("Y", s.b.sum(s.load("d_part", "bd"), "d"), "b")
    assert [v.split for v in variants(s.b.build())] == [None]


def test_what_is_no_program_is_not_rewritten():
    program = programs.row_softmax()
    nodes = (*program.nodes[:-1], Node("accum_sum", (1,), None, ("b", "n")))
    assert [v.split for v in variants(replace(program, nodes=nodes))] == [None]
