"""Constants of masks become minus infinity where nothing sees them, in all kernels at once."""

from __future__ import annotations

from math import inf

import pytest
import several_kernels

from mirage_py.codegen.lowering.hidden_constants import with_hidden_constants
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.ugraph import BlockGraph

SPEC = """
B = 4, N = 96
X[B, N] : f16
Y[b, n] : f32 = exp(X[b, n]) * (n <= b) / sum[n](exp(X[b, n]) * (n <= b))
"""
KERNELS = """
tensor M[4] : f32
tensor L[4] : f32
kernel sums {{
  grid b by 1
  %0 = load X[b, n]
  %1 = mask (n <= b)
  %2 = const -1e+30
  %3 = where %1, %0, %2
  %4 = max[n] %3
  %5 = shift %4
  %6 = sub %3, %5
  %7 = exp %6
  %8 = mul %7, %1
  %9 = sum[n] %8
  store M[b] = %5
  store L[b] = %9
}}
kernel divide {{
  grid b by 1, n by 32
  %0 = load X[b, n]
  %1 = mask ({mask})
  %2 = const -1e+30
  %3 = where %1, %0, %2
  %4 = load M[b]
  %5 = sub %3, %4
  %6 = exp %5
  %7 = mul %6, %{factor}
  %8 = load L[b]
  %9 = div %7, %8
  store Y[b, n] = %9
}}
"""


def constants(between: tuple[str, ...] = ("M", "L"), **places: object) -> list[float]:
    """What the two constants become."""
    graph = several_kernels.over(parse(SPEC), KERNELS.format(**places))
    blocks = [k for k in graph.kernels if isinstance(k, BlockGraph)]
    found = with_hidden_constants(blocks, graph.tensors, between)
    return [n.attr for b in found for n in b.nodes if n.op == "const" and isinstance(n.attr, float)]


def test_both_are_hidden_where_every_exponential_is_masked_again():
    assert constants(mask="n <= b", factor=1) == [-inf, -inf]


def test_a_shift_that_another_kernel_does_not_mask_keeps_both():
    """The first kernel masks all of its own exponentials."""
    assert constants(mask="n <= b", factor=6) == [-1e30, -1e30]


def test_another_mask_is_not_the_same():
    assert constants(mask="n <= b + 1", factor=1) == [-1e30, -inf]


@pytest.mark.parametrize("between", [(), ("L",)])
def test_a_shift_that_somebody_else_reads_is_seen(between: tuple[str, ...]):
    assert constants(between, mask="n <= b", factor=1)[0] == -1e30
