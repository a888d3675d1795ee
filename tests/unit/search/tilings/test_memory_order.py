"""Blocks, last axis fastest, go through memory in sequence: of which grids that is so."""

from __future__ import annotations

import pytest
from cuda_plans import cuda_plan

from mirage_py.search.tilings.memory_order import is_row_major
from mirage_py.ugraph.ir.ugraph import BlockGraph

SPECS = {
    "rows": "X[32, 4096] : bf16\nY[m, d] = relu(X[m, d])\n",
    "turned": "X[4096, 32] : bf16\nY[m, d] = relu(X[d, m])\n",
    "columns": "X[4096, 32] : bf16\nY[d, m] = relu(X[d, m])\n",
    "bias": "X[32, 4096], B[4096] : bf16\nY[m, d] = X[m, d] + B[d]\n",
    "one row": "X[1, 4096] : bf16\nY[m, d] = relu(X[m, d])\n",
    "looked up": "X[32, 4096] : bf16, I[32] : i64\nY[m, d] = relu(X[I[m], d])\n",
}


def found(spec: str, loads: str, store: str, tiles: str, least_bytes: float = 0) -> bool:
    name, *more = loads.split("; ")
    body = f"  %0 = load {name}\n"
    body += "".join(f"  %1 = load {b}\n  %2 = add %0, %1\n" for b in more) or "  %1 = relu %0\n"
    last = 2 if more else 1
    kernel = f"\nkernel k {{\n  grid {tiles}\n{body}  store {store} = %{last}\n}}\n"
    ugraph = cuda_plan(SPECS[spec], kernel).ugraph
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    return is_row_major(ugraph.scope, block, least_bytes)


def test_where_several_blocks_share_a_row_and_the_rows_come_first() -> None:
    assert found("rows", "X[m, d]", "Y[m, d]", "m by 1, d by 1024")
    assert found("bias", "X[m, d]; B[d]", "Y[m, d]", "m by 1, d by 1024", least_bytes=8192)
    assert not found("rows", "X[m, d]", "Y[m, d]", "d by 1024, m by 1")


@pytest.mark.parametrize(
    ("spec", "load", "store", "tiles"),
    [
        ("rows", "X[m, d]", "Y[m, d]", "m by 1, d by 4096"),  # a block has a row
        ("one row", "X[m, d]", "Y[m, d]", "m by 1, d by 1024"),
        ("turned", "X[d, m]", "Y[m, d]", "m by 1, d by 1024"),
        ("columns", "X[d, m]", "Y[d, m]", "m by 1, d by 1024"),
    ],
)
def test_where_it_would_be_no_other_order_or_a_worse_one(
    spec: str, load: str, store: str, tiles: str
) -> None:
    assert not found(spec, load, store, tiles)


def test_small_tensors_do_not_count() -> None:
    assert not found("rows", "X[m, d]", "Y[m, d]", "m by 1, d by 1024", least_bytes=1 << 18)
    # A bias has no rows.
    assert not found("bias", "X[m, d]; B[d]", "Y[m, d]", "m by 1, d by 1024")
