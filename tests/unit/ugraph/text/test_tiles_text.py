"""The tiles of a plan as reports print them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.ugraph.text.tiles_text import tiles_of

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


def test_tiles_of_each_kernel(ugraph: UGraph):
    options = LaunchConfig(8, (3,), reversed_axes=True, evict_first=("W",))
    assert tiles_of(Plan(ugraph, (options,))) == (
        "grid b by 2, n by 6; loop d by 16; 8 warps; stages 3; axes reversed"
    )
    deep = LaunchConfig(4, (3, 2, 3))
    assert tiles_of(Plan(ugraph, (deep,))).endswith("4 warps; stages 3, 2, 3")
    assert tiles_of(Plan(ugraph, (LaunchConfig(4, (3, 3)),))).endswith("4 warps; stages 3")
    call = LibraryCall("product", "matmul", ("X", "W"), "Y")
    both = replace(ugraph, kernels=(call, *ugraph.kernels))
    assert tiles_of(Plan(both, (LaunchConfig(), LaunchConfig(1)))) == (
        "library matmul | grid b by 2, n by 6; loop d by 16; 1 warp"
    )
