"""The axes of a grid, first fastest, as blocks go through memory in sequence."""

from __future__ import annotations

import pytest
from cuda_plans import cuda_plan

from mirage_py.search.tilings.memory_order import in_memory_order
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.text.text_form import parse_ugraph

SPECS = {
    "rows": "X[32, 4096] : bf16\nY[m, d] = relu(X[m, d])\n",
    "turned": "X[4096, 32] : bf16\nY[m, d] = relu(X[d, m])\n",
    "columns": "X[4096, 32] : bf16\nY[d, m] = relu(X[d, m])\n",
    "bias": "X[32, 4096], B[4096] : bf16\nY[m, d] = X[m, d] + B[d]\n",
    "one row": "X[1, 4096] : bf16\nY[m, d] = relu(X[m, d])\n",
    "image": "X[4, 32, 64, 256] : bf16\nY[b, c, h, w] = relu(X[b, c, h, w])\n",
    "product": "X[4096, 64], W[64, 512] : bf16\nY[m, n] = sum[k](X[m, k] * W[k, n])\n",
}


def ordered(spec: str, loads: str, store: str, tiles: str, least_bytes: float = 0) -> list[str]:
    name, *more = loads.split("; ")
    body = f"  %0 = load {name}\n"
    last = "%1 = relu %0"
    if more:
        op = "matmul[k]" if spec == "product" else "add"
        last = f"%1 = load {more[0]}\n  %2 = {op} %0, %1"
    body += f"  {last}\n"
    kernel = f"\nkernel k {{\n  grid {tiles}\n{body}  store {store} = %{1 + len(more)}\n}}\n"
    ugraph = cuda_plan(SPECS[spec], kernel).ugraph
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    return [a.dim for a in in_memory_order(ugraph.scope, block, least_bytes).grid]


def test_the_last_axis_of_memory_runs_fastest() -> None:
    for tiles in ("m by 1, d by 1024", "d by 1024, m by 1"):
        assert ordered("rows", "X[m, d]", "Y[m, d]", tiles) == ["d", "m"]
        assert ordered("columns", "X[d, m]", "Y[d, m]", "d by 64, m by 8") == ["m", "d"]


def test_rows_of_images_come_one_after_the_other() -> None:
    """A convolution of one row took 1.98 ms on an H200 with images fastest, columns slowest."""
    tiles = "b by 1, c by 32, h by 1, w by 64"
    assert ordered("image", "X[b, c, h, w]", "Y[b, c, h, w]", tiles) == ["w", "c", "h", "b"]


def test_what_is_read_turned_goes_by_what_is_read() -> None:
    assert ordered("turned", "X[d, m]", "Y[m, d]", "d by 64, m by 8") == ["m", "d"]


@pytest.mark.parametrize("tiles", ["m by 64, n by 64", "n by 64, m by 64"])
def test_blocks_that_read_the_same_are_neighbours(tiles: str) -> None:
    """Of a small W nobody asks who reads it; of two large operands neither axis comes first."""
    operands = "X[m, k]; W[k, n]"
    assert ordered("product", operands, "Y[m, n]", tiles, least_bytes=1 << 17) == ["n", "m"]
    assert ordered("product", operands, "Y[m, n]", tiles) == [tiles[0], tiles.split(", ")[1][0]]


@pytest.mark.parametrize(
    ("spec", "loads", "tiles", "least"),
    [
        ("rows", "X[m, d]", "m by 1, d by 4096", 0),  # a block has a row
        ("one row", "X[m, d]", "m by 1, d by 1024", 0),
        ("rows", "X[m, d]", "m by 1, d by 1024", 1 << 18),
    ],
)
def test_where_nothing_is_gained_it_stays(spec: str, loads: str, tiles: str, least: int) -> None:
    assert ordered(spec, loads, "Y[m, d]", tiles, least) == ["m", "d"]


LOOKED_UP = """
ugraph looked_up
dim m = 32
dim d = 4096
input X[512, 4096] : bf16
input I[32] : i64
output Y[32, 4096] : bf16
program {
  %0 = load X[I[m], d]
  %1 = relu %0
  return Y[m, d] = %1
}
kernel k {
  grid m by 1, d by 1024
  %0 = load X[I[m], d]
  %1 = relu %0
  store Y[m, d] = %1
}
"""


def test_of_what_is_looked_up_nobody_knows_where_it_lies() -> None:
    ugraph = parse_ugraph(LOOKED_UP)
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    assert in_memory_order(ugraph.scope, block, 1 << 18) is block
    assert [a.dim for a in in_memory_order(ugraph.scope, block, 0).grid] == ["d", "m"]
