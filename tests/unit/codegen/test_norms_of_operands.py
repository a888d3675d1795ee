"""Sums over a matrix that is loaded for a product."""

from __future__ import annotations

import several_kernels

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan

SCORES = """
ROWS = 64, KEYS = 128, C = 64
Q[ROWS, C], K[KEYS, C] : f16
Y[q, s] : f32 = sum[c](Q[q, c] * K[s, c]) / sqrt(sum[c](K[s, c]^2))
"""

SCORES_KERNEL = """
kernel scores {
  grid q by 64, s by 64
  %0 = load Q[q, c]
  %1 = load K[s, c]
  %2 = matmul[c] %0, %1
  %3 = square %1
  %4 = sum[c] %3
  %5 = sqrt %4
  %6 = div %2, %5
  store Y[q, s] = %6
}
"""


def plan_of(flags: tuple[tuple[str, str], ...] = ()) -> Plan:
    graph = several_kernels.over(parse(SCORES), SCORES_KERNEL)
    return Plan(graph, (LaunchConfig.from_flags(4, (), flags),))


def test_columns_are_summed_as_rows() -> None:
    """The keys lie with their rows along the columns of the product."""
    (kernel,) = emit_triton(plan_of())
    assert "tl.sum(tl.trans(square" in kernel.text.source
    assert "), axis=1)" in kernel.text.source


def test_rows_stay_rows() -> None:
    (kernel,) = emit_triton(plan_of((("axes", "reversed"),)))
    assert "tl.sum(square" in kernel.text.source


def test_agrees_with_float64_in_the_interpreter() -> None:
    for flags in ((), (("axes", "reversed"),)):
        found = check_interpreted(parse(SCORES), plan_of(flags), seed=1)
        assert found.passed, found.reason
