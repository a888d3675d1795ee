"""Descriptions of kernels: grid, loops, tensors between them, maxima."""

from __future__ import annotations

from dataclasses import replace

import clusters
import pytest

from mirage_py.formatting.kernel_format import count_text, describe_plan, describe_ugraph, size_text
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph

SPLIT = """
ugraph rows
dim b = 8
dim d_part = 4
dim d = 25
input X[8, 100] : f16
output Y[8] : f16
tensor P[4, 8] : f32
program {
  %0 = load X[b, d_part * 25 + d]
  %1 = sum[d_part, d] %0
  return Y[b] = %1
}
kernel first {
  grid b by 3, d_part by 1
  %0 = const 2.0
  loop d by 8 {
    %1 = load X[b, d_part * 25 + d]
    %2 = sum[d] %1
    %3 = accum_sum %2
  }
  store P[d_part, b] = %3
}
kernel last {
  grid b by 8
  %0 = load P[d_part, b]
  %1 = sum[d_part] %0
  store Y[b] = %1
}
"""

ATTENTION = """
ugraph online
dim b = 4
dim s = 64
input X[4, 64] : f16
input V[4, 64] : f16
output Y[4] : f16
program {
  %0 = load X[b, s]
  %1 = exp %0
  %2 = load V[b, s]
  %3 = mul %1, %2
  %4 = sum[s] %3
  %5 = sum[s] %1
  %6 = div %4, %5
  return Y[b] = %6
}
kernel online {
  grid b by ?
  loop s by ? {
    %0 = load X[b, s]
    %1 = load V[b, s]
    %2 = max[s] %0
    %3 = accum_max[shift] %2
    %4 = sub %0, %3
    %5 = exp %4
    %6 = mul %5, %1
    %7 = sum[s] %6
    %8 = sum[s] %5
    %9 = accum_rescaled[1] %7, %3
    %10 = accum_rescaled[1] %8, %3
  }
  %11 = div %9, %10
  store Y[b] = %11
}
"""


@pytest.fixture
def split() -> UGraph:
    return parse_ugraph(SPLIT)


def test_two_kernels_and_what_goes_between_them(split: UGraph):
    words = describe_ugraph(split)
    assert words.summary == (
        "2 kernels for the 1 operator of the program, with 1 tensor between them.",
        "P[4, 8] : f32 goes through memory (128 bytes): first writes it, last reads it.",
    )
    first, last = words.kernels
    assert first.title == "12 blocks, each takes 3 of b and 1 of d_part"
    assert [(step.title, step.lines) for step in first.steps] == [
        ("loop over d: 4 iterations of 8", ("s1[b, d_part] += sum[d](X[b, d_part * 25 + d])",)),
        ("after the loop", ("P[d_part, b] = s1",)),
    ]
    assert first.steps[0].reads == ("X[b, d_part * 25 + d]",)
    assert last.title == "1 block, each takes 8 of b"
    assert [step.title for step in last.steps] == ["at once"]


def test_a_plan_says_warps_and_loads_in_flight(split: UGraph):
    plan = Plan(split, (LaunchConfig(4, (3,)), LaunchConfig(1)))
    first, last = describe_plan(plan).kernels
    assert first.title.endswith("; 4 warps")
    assert first.steps[0].title == "loop over d: 4 iterations of 8, 3 in flight"
    assert last.title.endswith("; 1 warp")


def test_a_family_says_what_is_settled():
    (kernel,) = describe_ugraph(parse_ugraph(ATTENTION)).kernels
    assert kernel.title == "a grid over b"
    assert kernel.steps[0].title == "loop over s"


def test_a_running_maximum_is_explained():
    words = describe_ugraph(parse_ugraph(ATTENTION))
    (fusion,) = words.summary
    assert fusion.startswith("1 kernel for the 5 operators of the program; nothing but inputs")
    (kernel,) = words.kernels
    (remark,) = kernel.remarks
    assert remark == (
        "m1 is a running maximum that only shifts exponents: it keeps them from overflowing and "
        "cancels in the result; s1 and s2 are rescaled when it grows."
    )


def test_a_library_call(split: UGraph):
    call = LibraryCall("product", "matmul", ("X", "W"), "P")
    words = describe_ugraph(replace(split, kernels=(call, split.kernels[1])))
    assert words.summary[1].endswith("product writes it, last reads it.")
    assert words.kernels[0].title == "a call of the vendor's library: P = matmul(X, W)"
    assert words.kernels[0].steps == ()


def test_blocks_that_add_to_one_tensor(split: UGraph):
    text = SPLIT.replace("store P[d_part, b] = %3", "store_add Y[b] = %3")
    ugraph = parse_ugraph(text)
    (kernel,) = describe_ugraph(
        replace(ugraph, kernels=ugraph.kernels[:1], intermediates=())
    ).kernels
    assert kernel.remarks == (
        "Y starts at zero, and all blocks along d_part add to it atomically.",
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [(12, "12 bytes"), (4096, "4.1 kB"), (33_554_432, "33.6 MB"), (2 * 10**9, "2 GB")],
)
def test_sizes(number: int, text: str):
    assert size_text(number) == text


def test_counts():
    assert count_text(1, "kernel") == "1 kernel"
    assert count_text(0, "family", "families") == "0 families"


def test_clusters_are_named():
    (kernel,) = describe_plan(clusters.cluster_attention()).kernels
    begin = "32 blocks in clusters of 4 along s_part, each takes 16 of q"
    assert kernel.title.startswith(begin)
