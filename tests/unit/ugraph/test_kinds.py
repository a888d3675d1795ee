"""What reports call a µGraph, and how they write down its tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.dtypes import F32
from mirage_py.ugraph.kinds import kind_of, tiles_of
from mirage_py.ugraph.plan import LaunchOptions, Plan
from mirage_py.ugraph.program import Tensor
from mirage_py.ugraph.rewrite.split_dim import split_dim
from mirage_py.ugraph.text import parse_ugraph
from mirage_py.ugraph.ugraph import LibraryCall, UGraph

TEXT = """
ugraph product
dim b = 4
dim d = 64
dim n = 6
input X[4, 64] : f16
input W[64, 6] : f16
output Y[4, 6] : f16
program {
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = matmul[d] %0, %1
  return Y[b, n] = %2
}
kernel product {
  grid b by 2, n by 6
  loop d by 16 {
    %0 = load X[b, d]
    %1 = load W[d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }
  store Y[b, n] = %3
}
"""


@pytest.fixture
def ugraph() -> UGraph:
    return parse_ugraph(TEXT)


@pytest.mark.parametrize(
    ("count", "kind"),
    [(1, "one kernel"), (2, "two kernels"), (3, "three kernels"), (5, "5 kernels")],
)
def test_a_kind_counts_kernels(ugraph: UGraph, count: int, kind: str):
    more = replace(ugraph, kernels=ugraph.kernels * count)
    assert kind_of(more, ugraph.program) == kind


def test_a_split_dimension_is_a_kind(ugraph: UGraph):
    split = replace(ugraph, program=split_dim(ugraph.program, "d", 4))
    assert kind_of(split, ugraph.program) == "split"
    # The user's own names mean nothing.
    named = parse("D_part = 4, D = 8\nX[D_part, D] : f16\nY[d_part, d] = X[d_part, d]\n")
    assert kind_of(replace(ugraph, program=named), named) == "one kernel"


def test_a_library_call_is_a_kind(ugraph: UGraph):
    call = LibraryCall("product", "matmul", ("X", "W"), "P")
    called = replace(ugraph, kernels=(call,), intermediates=(Tensor("P", (4, 6), F32),))
    assert kind_of(called, ugraph.program) == "library"


def test_tiles_of_each_kernel(ugraph: UGraph):
    options = LaunchOptions(8, (3,), (("axes", "reversed"), ("evict:W", "evict_first")))
    assert tiles_of(Plan(ugraph, (options,))) == (
        "grid b by 2, n by 6; loop d by 16; 8 warps; stages 3; axes reversed"
    )
    call = LibraryCall("product", "matmul", ("X", "W"), "Y")
    both = replace(ugraph, kernels=(call, *ugraph.kernels))
    assert tiles_of(Plan(both, (LaunchOptions(), LaunchOptions(1)))) == (
        "library matmul | grid b by 2, n by 6; loop d by 16; 1 warp"
    )
