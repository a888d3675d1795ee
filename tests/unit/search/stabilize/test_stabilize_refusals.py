"""Kernel graphs in which an exponential can overflow: nothing is shifted, and that is reported."""

from __future__ import annotations

from exp_graphs import LIBRARY, ROW, SOFTMAX, library, softmax
from families import is_safe

from mirage_py.search.stabilize.stabilize import Stabilized, stabilized
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph


def refused(ugraph: UGraph, reason: str) -> None:
    """Nothing is shifted, and that is said."""
    found = stabilized(ugraph)
    assert found == Stabilized(ugraph, found.faults)
    assert len(found.faults) == 1
    assert reason in found.faults[0]
    assert not is_safe(ugraph)


def test_a_scale_that_a_library_product_sums_over() -> None:
    refused(library(", s by 3"), "nothing to take a maximum over")


def test_a_store_in_the_loop_of_a_running_maximum() -> None:
    text = LIBRARY.replace("SPLIT", "").replace(
        "%0 = load X[b, s]\n  %1 = exp %0\n  store P[b, s] = %1",
        "loop s by 4 {\n%0 = load X[b, s]\n  %1 = exp %0\n  store P[b, s] = %1\n}",
    )
    refused(parse_ugraph(text, "text"), "moves in loop s")


def test_parts_that_are_added_atomically() -> None:
    refused(
        softmax(
            "tensor A[5] : f32\ntensor B[5] : f32",
            """
kernel first {
  grid b by 2, p by 1
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[r, s] %3
  %5 = sum[r, s] %1
  store_add A[b] = %4
  store_add B[b] = %5
}
kernel second {
  grid b by 3
  %0 = load A[b]
  %1 = load B[b]
  %2 = div %0, %1
  store Y[b] = %2
}
""",
        ),
        "sums over",
    )


def test_values_that_are_read_by_other_names() -> None:
    # X is as wide as it is long, and its exp is read transposed.
    text = """
ugraph gram
dim a = 6
dim s = 6
input X[6, 6] : f32
output Y[6] : f32
tensor E[6, 6] : f32
program {
  %0 = load X[a, s]
  %1 = exp %0
  %2 = load X[s, a]
  %3 = exp %2
  %4 = sum[s] %3
  %5 = sum[s] %1
  %6 = div %5, %4
  return Y[a] = %6
}
kernel first {
  grid a by 2
  %0 = load X[a, s]
  %1 = exp %0
  store E[a, s] = %1
}
kernel second {
  grid a by 2
  %0 = load E[a, s]
  %1 = sum[s] %0
  %2 = load E[s, a]
  %3 = sum[s] %2
  %4 = div %1, %3
  store Y[a] = %4
}
"""
    found = stabilized(parse_ugraph(text, "text"))
    assert found.ugraph == parse_ugraph(text, "text")


def test_an_exp_that_no_kernel_could_shift_is_no_fault() -> None:
    text = SOFTMAX.replace("TENSORS", "tensor A[5, 3] : f32").replace("POWER", ROW)
    text = (
        text.replace("%8 = div %4, %7", "%8 = add %4, %7")
        + """
kernel first {
  grid b by 2, p by 1
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = add %3, %1
  %5 = sum[r, s] %4
  store A[b, p] = %5
}
kernel second {
  grid b by 2
  %0 = load A[b, p]
  %1 = sum[p] %0
  store Y[b] = %1
}
"""
    )
    graph = parse_ugraph(text, "text")
    assert stabilized(graph) == Stabilized(graph, ())


TWO_EXPS = """
ugraph two_exps
dim b = 5
dim s = 6
input X[5, 6] : f32
input W[6] : f32
output Y[5] : f32
tensor A[5] : f32
program {
  %0 = load X[b, s]
  %1 = exp %0
  %2 = load W[s]
  %3 = exp %2
  %4 = matmul[s] %1, %3
  %5 = sum[s] %1
  %6 = div %4, %5
  return Y[b] = %6
}
kernel first {
  grid b by 2
  %0 = load X[b, s]
  %1 = ONCE
  %2 = TWICE
  %3 = exp %2
  %4 = sum[s] %3
  store A[b] = %4
}
kernel second {
  grid b by 2
  %0 = load X[b, s]
  %1 = exp %0
  %2 = load W[s]
  %3 = exp %2
  %4 = matmul[s] %1, %3
  %5 = load A[b]
  %6 = div %4, %5
  store Y[b] = %6
}
"""


def test_one_exp_of_several_that_could_be_shifted() -> None:
    """The scale of X's exp cancels in the program, that of W's does not."""
    text = TWO_EXPS.replace("ONCE", "cast[f32] %0").replace("TWICE", "cast[f32] %1")
    found = stabilized(parse_ugraph(text, "text"))
    assert found.faults == ()
    assert [t.name for t in found.ugraph.intermediates] == ["A", "shift0"]
    text = TWO_EXPS.replace("ONCE", "maximum %0, %0").replace("TWICE", "maximum %1, %1")
    assert not is_safe(parse_ugraph(text, "text"))


MASKED = """
ugraph masked
dim b = 5
dim s = 6
input X[5, 6] : f32
input M[5, 6] : bool
output Y[5] : f32
program {
  %0 = load X[b, s]
  %1 = exp %0
  %2 = load M[b, s]
  %3 = const 1.0
  %4 = sub %3, %2
  %5 = mul %1, %4
  %6 = sum[s] %5
  %7 = log %6
  return Y[b] = %7
}
kernel k {
  grid b by 2
  %0 = load X[b, s]
  %1 = exp %0
  %2 = load M[b, s]
  %3 = const 1.0
  FACTOR
  %6 = sum[s] %5
  %7 = log %6
  store Y[b] = %7
}
"""


def test_a_mask_that_is_no_factor_any_more() -> None:
    """exp(x) - mask * exp(x): where the masked x is large, nothing of the others is left."""
    text = MASKED.replace("FACTOR", "%4 = sub %3, %2\n%5 = mul %4, %1")
    assert is_safe(parse_ugraph(text, "text"))
    text = MASKED.replace("FACTOR", "%4 = mul %2, %1\n%5 = sub %1, %4")
    assert "not masked" in stabilized(parse_ugraph(text, "text")).faults[0]
