"""Programs of short rows are searched in one kernel."""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.search.space.short_rows import has_short_rows
from mirage_py.targets import H200

ROWS = "B = 2048, D = 64\nX[B, D] : f32\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"{ROWS}Y[b, d] = softmax[d](X[b, d])", True),
        (f"{ROWS}Y[b, d] = relu(X[b, d])", False),
        (f"{ROWS}Y[d] = sum[b](X[b, d])", False),
        (f"{ROWS}Y[b] = sum[d](X[b, d])\nZ[d] = sum[b](X[b, d])", False),
        ("B = 2048, D = 4096\nX[B, D] : f32\nY[b, d] = softmax[d](X[b, d])", False),
        ("B = 16, D = 64\nX[B, D] : f32\nY[b, d] = softmax[d](X[b, d])", False),
        (f"{ROWS}W[D, D] : f32\nY[b, n] = sum[d](X[b, d] * W[d, n])", False),
    ],
    ids=["rows", "elements", "columns", "both", "long", "few", "matmul"],
)
def test_rows_that_a_block_holds(text, wanted):
    assert has_short_rows(parse(text)) is wanted


def test_one_kernel_is_all_that_is_searched():
    program = parse(f"{ROWS}Y[b, d] = softmax[d](X[b, d])")
    ranking = rank_plans(program, H200, Request("h200", "triton"))
    assert {len(i.plan.ugraph.kernels) for i in ranking.instances} == {1}
