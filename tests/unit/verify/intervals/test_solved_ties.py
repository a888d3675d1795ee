"""Guards whose condition no random input makes a tie: the field test solves for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mirage_py.frontend.spec import parse
from mirage_py.frontend.torch.trace import trace
from mirage_py.ugraph.text.text_form import parse_program, parse_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.intervals.structured_inputs import STYLES, structured_inputs

# The sum is 0 for numbers that are no constant of the program.
GUARDED = """
ugraph guarded
dim b = 5
dim d = 9
dim n = 7
input X[5, 9] : f32
input W[9, 7] : f32
output Y[5, 9] : f32
program {
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = const 2.0
  %3 = sub %1, %2 : [d, n]
  %4 = sum[n] %3 : [d]
  %5 = const 0.0
  %6 = ne %4, %5 : [d]
  %7 = div %0, %4 : [b, d]
  %8 = where %6, %7, %5 : [b, d]
  return Y[b, d] = %8
}
kernel guarded {
  grid b by 2, d by 4
  %0 = load X[b, d]  # b <- grid 0, d <- grid 1
  %1 = load W[d, n]  # d <- grid 1
  %2 = const 2.0
  %3 = sub %1, %2 : [d, n]
  %4 = sum[n] %3 : [d]
  %5 = const 0.0
  %6 = ne %4, %5 : [d]
"""
KEPT = """  %7 = div %0, %4 : [b, d]
  %8 = where %6, %7, %5 : [b, d]
  store Y[b, d] = %8  # b -> grid 0, d -> grid 1
}
"""
LOST = """  %7 = div %6, %4 : [d]
  %8 = mul %0, %7 : [b, d]
  store Y[b, d] = %8  # b -> grid 0, d -> grid 1
}
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_guard_of_a_sum_is_missed(seed: int) -> None:
    wrong, right = (parse_ugraph(GUARDED + end, "text") for end in (LOST, KEPT))
    assert field_test(right.program, right, seed=seed).equal
    found = field_test(wrong.program, wrong, seed=seed)
    assert not found.equal
    assert found.mismatch is not None
    assert "has no value" in found.mismatch.reason


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        ("where(sum[d](X[b, d]) > 3 * W[b], X[b, d], 0) * W[b]",
         lambda x, w: x.sum(axis=1) - 3 * w),
        ("where(X[b, d] + W[b] == 0.5, X[b, d], W[b])",
         lambda x, w: x + w[:, None] - 0.5),
    ],
)  # fmt: skip
def test_every_second_draw_has_a_tie(text: str, difference) -> None:
    program = parse(f"B = 7, D = 9\nX[B, D], W[B] : f32\nY[b, d] = {text}")
    drawn = structured_inputs(program, 40, seed=2)
    tied = 0
    solved = range(len(STYLES) + 1, 40, 2)
    for number in solved:
        x, w = (drawn[n].mid[..., number] for n in ("X", "W"))
        tied += bool((np.asarray(difference(x, w)) == 0).any())
    assert tied > len(solved) // 2


def test_a_dimension_may_be_shorter_than_the_axis_that_it_reads() -> None:
    """X[s] beside X[t], at small sizes that differ: one of them reads the start of the axis."""
    program = parse_program(SHORTER, "text")
    found = structured_inputs(program, len(STYLES) + 8, 3)
    assert found["X"].mid.shape[:-1] == (8,)


def test_what_is_read_at_positions_that_are_data_is_not_moved() -> None:
    def chosen(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        found = x.gather(1, ids)
        return torch.where(found > x[:, :2] * 0.5, found, 0.0)

    ids = torch.tensor([[0, 2], [1, 1], [3, 0]])
    program = trace(chosen, torch.randn(3, 4), ids)
    found = structured_inputs(program, len(STYLES) + 8, 3)
    assert [t.name for t in program.inputs] == [*found]


SHORTER = """
program shorter
dim s = 8
dim t = 7
input X[8] : f32
output Y[8] : f32
output Z[7] : f32
%0 = load X[s]
%1 = load X[t]
%2 = lt %1, %0 : [s, t]
%3 = sum[s] %2 : [t]
return Y[s] = %0
return Z[t] = %3
"""
