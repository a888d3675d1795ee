"""Small sizes of dimensions that an index counts down."""

from __future__ import annotations

import pytest
from naive import naive_plan

from mirage_py.ugraph.text.text_form import parse_program
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.sizes.shrink import shrink
from mirage_py.verify.sizes.small_sizes import small_extents

FLIPPED = """program flipped
dim b = 40
dim d = 8
dim e = 50
input X[40, 8, 50] : f32
output Y[40, 8, 50] : f32
%0 = load X[b, d * -1 + 7, e]
%1 = exp %0
return Y[b, d, e] = %1
"""


@pytest.mark.parametrize("seed", range(6))
def test_few_points_keep_their_number(seed: int):
    program = parse_program(FLIPPED)
    sizes = small_extents(program, seed)
    assert sizes["d"] == 8
    assert max(sizes["b"], sizes["e"]) < 32
    assert shrink(program, sizes).tensors["X"].shape[1] == 8


def test_a_flip_is_verified():
    program = parse_program(FLIPPED)
    field_test(program, naive_plan(program, {"b": 16}).ugraph, trials=4, seed=0).require()


def test_many_points_are_fewer():
    many = FLIPPED.replace("d = 8", "d = 200").replace(" 8,", " 200,").replace("+ 7", "+ 199")
    assert small_extents(parse_program(many), 0)["d"] < 32
