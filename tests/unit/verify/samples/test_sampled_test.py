from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import samples
from families import stabilize
from naive import naive_plan

from mirage_py.errors import VerificationError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.ir.dtypes import BOOL, F32
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, LibraryCall, Section, UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.evaluate.lazy_inputs import LazyMeaning, lazy_inputs
from mirage_py.verify.samples import block_samples
from mirage_py.verify.samples import sampled_test as sampled_module
from mirage_py.verify.samples.sampled_blocks import blocks_needed
from mirage_py.verify.samples.sampled_library import operand_parts, part_work
from mirage_py.verify.samples.sampled_test import sampled_test

ATTENTION = """
H = 32, T = 4096, S = 4096, C = 128, E = 128
Q[H, T, C], K[H, S, C], V[H, S, E] : f16
O[h, t, e] = sum[s](softmax[s](sum[c](Q[h, t, c] * K[h, s, c])) * V[h, s, e])
"""


@pytest.mark.parametrize("name", sorted(samples.TEXTS))
def test_right_graphs_pass(name):
    graph = samples.ugraph(name)
    evidence = sampled_test(graph.program, graph, seed=4).require()
    assert evidence.samples == 3
    assert evidence.elements > 0
    assert evidence.skipped == ""


def test_large_sizes_cost_little():
    program = parse(ATTENTION)
    graph = stabilize(naive_plan(program, {"h": 1, "t": 16}).ugraph)
    evidence = sampled_test(program, graph, samples=2, seed=1)
    assert evidence.equal
    assert evidence.elements == 2 * 16 * 128


@pytest.mark.parametrize(("share", "taken"), [(1.5, 1), (2.5, 2), (3.5, 3)])
def test_samples_share_the_work(share, taken, monkeypatch):
    program = parse("B = 64, N = 512\nX[B, N] : f16\nY[b, n] = exp(X[b, n])")
    graph = naive_plan(program, {"b": 16, "n": 128}).ugraph
    monkeypatch.setattr(sampled_module, "work_of", lambda *_: 1e6)
    monkeypatch.setattr(block_samples, "work_of", lambda *_: 1e6)
    evidence = sampled_test(program, graph, seed=1, max_work=share * 1e6)
    assert evidence.equal
    assert evidence.samples == taken
    assert bool(evidence.skipped) == (taken < 3)


def test_what_is_too_large_is_skipped_with_a_reason():
    program = parse(ATTENTION)
    graph = stabilize(naive_plan(program, {"h": 1, "t": 4096}).ugraph)
    evidence = sampled_test(program, graph, seed=1)
    assert evidence.equal
    assert evidence.samples == 0
    assert "operations" in evidence.skipped


def test_an_output_larger_than_any_memory_is_skipped_with_a_reason():
    program = parse("B = 1073741824, N = 1073741824\nX[B, N] : f16\nY[b, n] = exp(X[b, n])")
    evidence = sampled_test(program, naive_plan(program, {"b": 1, "n": 1024}).ugraph, seed=1)
    assert evidence.equal
    assert evidence.samples == 0
    assert "larger than the memory" in evidence.skipped


def test_a_draw_that_runs_out_of_memory_is_skipped(monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("mirage_py.verify.samples.sampled_test.run_blocks", full)
    graph = samples.ugraph("softmax")
    evidence = sampled_test(graph.program, graph, seed=1)
    assert (evidence.equal, evidence.samples) == (True, 0)
    assert "larger than the memory" in evidence.skipped


def test_a_wrong_tail_is_found():
    # The last tile of n is 15 wide, and the kernel scales what lies in it.
    program = parse("B = 4, N = 1000\nX[B, N] : f32\nY[b, n] = X[b, n] * 3")
    right = naive_plan(program, {"n": 197}).ugraph
    wrong_program = parse(
        "B = 4, N = 1000\nX[B, N] : f32\nY[b, n] = X[b, n] * where(n < 985, 3, 4)"
    )
    wrong = replace(naive_plan(wrong_program, {"n": 197}).ugraph, program=program)
    assert sampled_test(program, right, samples=2, seed=1).equal
    evidence = sampled_test(program, wrong, samples=2, seed=1)
    assert not evidence.equal
    assert evidence.mismatch is not None
    assert evidence.mismatch.index == (0, 985)
    with pytest.raises(VerificationError, match=r"Y\[0, 985\]"):
        evidence.require()


def test_a_divisor_that_is_always_zero():
    program = parse("N = 64\nX[N] : f32\nY[n] = X[n] / (X[n] * X[n])")
    other = parse("N = 64\nX[N] : f32\nY[n] = X[n] / (X[n] - X[n])")
    wrong = replace(naive_plan(other, {"n": 16}).ugraph, program=program)
    evidence = sampled_test(program, wrong, seed=1)
    assert not evidence.equal
    assert "divides by zero" in str(evidence.mismatch)


def test_only_the_blocks_that_are_needed_run():
    graph = samples.ugraph("split_attention")
    needs = blocks_needed(graph, 1, {"h": [1], "t": [2]})
    assert needs == {0: {"h": [1]}, 1: {"h": [1], "t": [2]}}


def test_blocks_that_store_for_others_run_too():
    graph = samples.ugraph("residual_gated")
    wide = replace(graph.kernels[0].grid[0], tile=1)
    fine = replace(graph, kernels=(replace(graph.kernels[0], grid=(wide, GridAxis("b", 1))),))
    evidence = sampled_test(fine.program, fine, samples=2, seed=1)
    assert evidence.equal
    # One row of both outputs in each sample, Y at one column.
    assert evidence.elements == 2 * (12 + 1)
    text = samples.TEXTS["split_attention"].replace(
        "grid h by 1, p by 1", "grid h by 1, p by 1, e by 2"
    )
    needs = blocks_needed(parse_ugraph(text), 1, {"h": [1], "t": [2]})
    assert needs[0] == {"h": [1]}


def test_all_blocks_that_add_to_an_element_run():
    graph = samples.ugraph("split_matmul_added")
    evidence = sampled_test(graph.program, graph, samples=1, seed=1)
    assert evidence.equal
    # A tile of Y and its rows of S, which the first block along n adds up.
    assert evidence.elements == 4 * 4 + 4


LIBRARY = """
ugraph gelu_matmul
dim b = 64
dim d = 4096
dim n = 8192
input X[64, 4096] : f16
input W[4096, 8192] : f16
output Y[64, 8192] : f16
tensor T[64, 8192] : f32
program {
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = matmul[d] %0, %1
  %3 = silu %2
  return Y[b, n] = %3
}
library product = matmul(X, W) -> T
kernel epilogue {
  grid n by 64, b by 16
  %0 = load T[b, n]
  %1 = silu %0
  store Y[b, n] = %1
}
"""


def test_of_a_library_product_only_a_window_is_computed():
    graph = parse_ugraph(LIBRARY)
    needs = blocks_needed(graph, 1, {"n": [128], "b": [48]})
    assert needs == {0: ((48, 64), (128, 192)), 1: {"n": [128], "b": [48]}}
    right = sampled_test(graph.program, graph, samples=2, seed=1)
    assert (right.equal, right.elements, right.skipped) == (True, 2 * 16 * 64, "")
    # Alone it is the output, of which a window is taken.
    program = replace(graph.program, outputs=(replace(graph.program.outputs[0], node=2),))
    alone = replace(graph, program=program, kernels=(LibraryCall("p", "matmul", ("X", "W"), "Y"),))
    found = sampled_test(program, replace(alone, intermediates=()), samples=3, seed=1)
    assert (found.equal, found.elements) == (True, 3 * 16 * 16)


def test_a_window_of_a_batched_product():
    tensors = {
        "A": Tensor("A", (1, 4, 5), F32),
        "B": Tensor("B", (3, 5, 6), F32),
        "C": Tensor("C", (6,), F32),
        "P": Tensor("P", (3, 4, 6), F32),
    }
    part = ((1, 2), (0, 3), (2, 4))
    product = LibraryCall("p", "matmul", ("A", "B"), "P")
    assert operand_parts(product, tensors, part) == [
        ("A", (None, (0, 3), None)),
        ("B", ((1, 2), None, (2, 4))),
    ]
    added = LibraryCall("q", "add", ("P", "C"), "P")
    assert operand_parts(added, tensors, part) == [("P", part), ("C", ((2, 4),))]
    assert part_work(product, tensors, part) < part_work(product, tensors, (None, None, None))


def test_two_kernels_over_one_dimension_with_other_tiles():
    program = parse("B = 64, D = 8\nX[B, D] : f32\nY[b] = sum[d](X[b, d]) * 2")
    middle = replace(program.outputs[0].tensor, name="S")
    b, d = ("b",), ("d",)
    index = program.outputs[0].index
    first = BlockGraph(
        "first",
        (GridAxis("b", 5),),
        (
            Node("load", (), Access("X", program.nodes[0].access.index), ("b", "d")),
            Node("sum", (0,), d, b),
            Node("store", (1,), Access("S", index), b),
        ),
        (Section((0, 1, 2)),),
    )
    second = BlockGraph(
        "second",
        (GridAxis("b", 7),),
        (
            Node("load", (), Access("S", index), b),
            Node("const", (), 2.0, ()),
            Node("mul", (0, 1), None, b),
            Node("store", (2,), Access("Y", index), b),
        ),
        (Section((0, 1, 2, 3)),),
    )
    graph = UGraph(program, (first, second), (middle,))
    assert blocks_needed(graph, 1, {"b": [7]}) == {0: {"b": [5, 10]}, 1: {"b": [7]}}
    assert sampled_test(program, graph, samples=6, seed=1).equal


def test_inputs_are_the_same_however_they_are_read():
    program = parse("A = 6, B = 5\nX[A, B] : f32\nY[a, b] = X[a, b] + 1")
    meaning = LazyMeaning(FieldOps(FIELDS[0], 1))
    x = lazy_inputs(program)["X"]
    whole = meaning.load(x, (slice(None), slice(None)))
    part = meaning.load(x, (slice(2, 4), 3))
    rows, columns = np.array([[2], [3]]), np.array([[3, 0]])
    points = meaning.load(x, (rows, columns))
    assert whole.shape == (6, 5)
    assert part.p.tolist() == whole.p[2:4, 3].tolist()
    assert points.p.tolist() == whole.p[rows, columns].tolist()
    assert len(np.unique(whole.p)) == 30
    (tensor,) = program.inputs
    mask = lazy_inputs(replace(program, inputs=(replace(tensor, dtype=BOOL),)))["X"]
    assert set(meaning.load(mask, (slice(None), slice(None))).p.ravel().tolist()) == {0, 1}
