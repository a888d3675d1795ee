"""Fragments on their way to shared memory as matrices, and results stored in rows."""

from __future__ import annotations

import pytest
from cuda_plans import cuda_plan, error_of, kernel_of

from mirage_py.codegen.cuda.epilogue.coalesced_stores import coalesced_layout
from mirage_py.codegen.cuda.layout.shared_tile import SharedTile
from mirage_py.codegen.cuda.layout.stmatrix import stmatrix, stmatrix_wavefronts
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.ugraph.ir.plan import Plan

PRODUCT = "X[{b}, 64], W[64, {n}] : f16\nY[b, n] = sum[d](X[b, d] * W[d, n])"
KERNEL = """
kernel product {{
  grid b by {b}, n by {n}
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = matmul[d] %0, %1
  store Y[b, n] = %2
}}
"""


def product(b: int, n: int, **flags: str) -> Plan:
    return cuda_plan(PRODUCT.format(b=b, n=n), KERNEL.format(b=b, n=n), **flags)


def bits(dim, count, first=0):
    return tuple((dim, n) for n in range(first, first + count))


def result(columns: int) -> Layout:
    """What four warps have of 64 rows: pairs along n, eight rows of b in lanes."""
    registers = (("n", 0), ("b", 3), *bits("n", columns - 3, 3))
    return Layout(registers, (*bits("n", 2, 1), *bits("b", 3)), bits("b", 2, 4))


@pytest.mark.parametrize(("dim", "is_transposed"), [("n", False), ("b", True)])
def test_rows_of_a_tile_are_rows_or_columns_of_a_fragment(dim: str, is_transposed: bool):
    other = "b" if dim == "n" else "n"
    store = stmatrix(SharedTile(bits(dim, 6), bits(other, 6), 2), result(6))
    assert store is not None
    assert store.is_transposed == is_transposed
    assert store.rows.register_count == 4
    assert store.rows.lanes[3:] == (("b", 3), ("n", 3))
    tile = SharedTile(bits(dim, 6), bits(other, 6), 2)
    assert stmatrix_wavefronts(tile, store) == 4 * 4  # no conflicts


def test_what_does_not_lie_as_matrices_do():
    tile = SharedTile(bits("n", 6), bits("b", 6), 2)
    own = result(6)
    assert stmatrix(SharedTile(tile.columns, tile.rows, 4), own) is None
    assert stmatrix(tile, Layout(own.registers[:2], own.lanes, own.warps)) is None
    assert stmatrix(tile, Layout(own.registers, (None, *own.lanes[1:]), own.warps)) is None
    assert stmatrix(tile, Layout(own.registers, own.lanes[::-1], own.warps)) is None


def test_rows_of_a_warp_are_as_wide_as_its_part_of_the_tile():
    found = coalesced_layout(result(6), (*bits("n", 6), *bits("b", 6)), (2, 8), 2)
    assert found is not None
    assert found.registers[:3] == bits("n", 3)
    assert found.lanes == (*bits("n", 3, 3), *bits("b", 2))
    assert found.warps == result(6).warps


def test_whole_sectors_and_copies_stay():
    own, tile = result(6), (*bits("n", 6), *bits("b", 6))
    assert coalesced_layout(own, tile, (4, 8), 2) is None
    assert coalesced_layout(Layout(own.registers, own.lanes, (None, None)), tile, (2, 8), 2) is None


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("rows", "columns", "axes"), [(64, 64, ""), (16, 64, ""), (64, 64, "reversed"), (56, 40, "")]
)
def test_agrees_with_float64(arch: str, rows: int, columns: int, axes: str):
    plan = product(rows, columns, arch=arch, stores="rows", axes=axes)
    assert error_of(plan, lambda x: x["X"] @ x["W"]) < 1e-3


def test_a_warp_turns_its_part_by_itself_where_that_is_asked_for():
    plain, rows = (kernel_of(product(64, 64, arch="sm_90a", stores=s)) for s in ("", "rows"))
    assert "turned" not in plain.body
    assert "stmatrix_x4(" in rows.body
    assert rows.body.count("__syncthreads") == plain.body.count("__syncthreads")
    assert rows.body.count("__syncwarp") == 1
    older = kernel_of(product(64, 64, arch="sm_80", stores="rows"))
    assert "stmatrix" not in older.body
    assert "turned" in older.body


def test_transposed_results_go_as_transposed_matrices():
    body = kernel_of(product(64, 64, arch="sm_90a", axes="reversed")).body
    assert "stmatrix_x4_trans(" in body
