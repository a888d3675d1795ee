"""Shifts under logarithms: a shift that a log takes out is added again after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exp_graphs import (
    LARGE,
    LOG_LOOP,
    LOG_PARTS,
    LOG_ROWS,
    LOSS,
    NO_PADDING,
    PADDED,
    check,
    check_floats,
    kernel,
    loads,
    loss,
    ops,
)  # fmt: skip
from families import is_safe, stabilize
from nightly import NIGHTLY

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import search
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.samples.sampled_test import sampled_test
from mirage_py.verify.sizes.shrink import fixed_dims, shrink_ugraph
from mirage_py.verify.sizes.small_sizes import instantiate_small, small_extents


@pytest.mark.parametrize("masked", [NO_PADDING, PADDED])
def test_a_running_maximum_is_added_after_the_loop(masked: str) -> None:
    safe = check(loss(LOG_LOOP, masked=masked))
    names = ops(safe, 0)
    assert names.count("accum_rescaled") == 1
    assert names.index("log") < names.index("add")


@pytest.mark.parametrize("masked", [NO_PADDING, PADDED])
def test_the_maximum_of_all_parts_is_added(masked: str) -> None:
    safe = check(loss(LOG_PARTS, "tensor A[5, 3] : f32", masked))
    assert [t.shape for t in safe.intermediates] == [(5, 3), (5, 3)]
    assert ops(safe, 1).count("exp") == ops(safe, 1).count("add") == 1


def test_a_log_in_another_kernel_reads_the_maximum() -> None:
    safe = check(loss(LOG_ROWS, "tensor A[5] : f32"))
    assert loads(safe, 1) == ["A", "shift0", "T"]
    assert "exp" not in ops(safe, 1)


def test_the_log_of_a_square() -> None:
    text = LOSS.replace("TENSORS", "") + LOG_LOOP
    graph = parse_ugraph(text.replace("MASKED", "%2 = const 1.0\n%3 = square %1"), "text")
    safe = check(graph)
    constants = [n.attr for n in kernel(safe, 0).nodes if n.op == "const"]
    assert 2.0 in constants


@pytest.mark.parametrize(
    ("kernels", "tensors"),
    [(LOG_LOOP, ""), (LOG_PARTS, "tensor A[5, 3] : f32"), (LOG_ROWS, "tensor A[5] : f32")],
)
@pytest.mark.parametrize("wrong", ["forgotten", "sub", "doubled", "of another row"])
def test_a_maximum_that_is_not_given_back_is_refuted(
    kernels: str, tensors: str, wrong: str
) -> None:
    safe = stabilize(loss(kernels, tensors))
    last = kernel(safe, len(safe.kernels) - 1)
    place = next(n for n, node in enumerate(last.nodes) if node.op == "add")
    log, shift = last.nodes[place].args
    if last.nodes[log].op != "log":
        log, shift = shift, log
    dims = last.nodes[place].dims
    instead = {
        "forgotten": Node("cast", (log,), safe.tensors["Y"].dtype, dims),
        "sub": Node("sub", (log, shift), None, dims),
        "doubled": Node("add", (shift, shift), None, dims),
        "of another row": Node("add", (log, log), None, dims),
    }[wrong]
    nodes = (*last.nodes[:place], instead, *last.nodes[place + 1 :])
    broken = replace(safe, kernels=(*safe.kernels[:-1], replace(last, nodes=nodes)))
    assert not field_test(safe.program, broken, trials=2, seed=5).equal


def test_a_log_in_the_loop_of_its_maximum() -> None:
    text = """
ugraph inside
dim b = 5
dim v = 4
input X[5, 4] : f32
output Y[5] : f32
program {
  %0 = load X[b, v]
  %1 = exp %0
  %2 = log %1
  %3 = sum[v] %2
  %4 = sum[v] %1
  %5 = log %4
  %6 = add %3, %5
  return Y[b] = %6
}
kernel k {
  grid b by 2
  loop v by 3 {
    %0 = load X[b, v]
    %1 = exp %0
    %2 = log %1
    %3 = sum[v] %2
    %4 = accum_sum %3
    %5 = sum[v] %1
    %6 = accum_sum %5
  }
  %7 = log %6
  %8 = add %4, %7
  store Y[b] = %8
}
"""
    found = stabilized(parse_ugraph(text, "text"))
    assert "takes a log" in found.faults[0]
    assert not is_safe(found.ugraph)


def test_a_log_of_logs() -> None:
    """Each part's logarithm is stored; the next kernel sums exponentials of them."""
    text = """
ugraph nested
dim b = 5
dim p = 3
dim v = 4
input X[5, 12] : f32
output Y[5] : f32
tensor L[5, 3] : f32
program {
  %0 = load X[b, p * 4 + v]
  %1 = exp %0
  %2 = sum[v] %1
  %3 = log %2
  %4 = exp %3
  %5 = sum[p] %4
  %6 = log %5
  return Y[b] = %6
}
kernel parts {
  grid b by 2, p by 2
  %0 = load X[b, p * 4 + v]
  %1 = exp %0
  %2 = sum[v] %1
  %3 = log %2
  store L[b, p] = %3
}
kernel whole {
  grid b by 3
  %0 = load L[b, p]
  %1 = exp %0
  %2 = sum[p] %1
  %3 = log %2
  store Y[b] = %3
}
"""
    safe = check(parse_ugraph(text, "text"))
    assert len(safe.intermediates) == 1
    assert ops(safe, 0).count("add") == ops(safe, 1).count("add") == 1


def test_a_padded_row_is_what_its_keys_make_it() -> None:
    safe = stabilize(loss(LOG_PARTS, "tensor A[5, 3] : f32", PADDED))
    # Row 0 sees its first logit only; all others would be far larger.
    inputs = {"X": np.full((5, 12), LARGE), "T": np.zeros(5)}
    inputs["X"][:, 0] = -3.0
    found = evaluate_ugraph(safe, inputs, FloatMeaning())["Y"]
    assert found[0] == pytest.approx(-3.0)
    assert found[1] == pytest.approx(LARGE)


HEAD = "R = 12, V = 40, D = 8\nX[R, D], W[D, V], B[V] : f32\n"
HEAD += "let Z[r, v] = sum[d](X[r, d] * W[d, v]) + B[v]\n"
PROGRAMS = {
    "cross_entropy": "Y[r] = log(sum[v](exp(Z[r, v]))) - sum[v](B[v] * Z[r, v])",
    "mean_loss": "Y[0] = mean[r](log(sum[v](exp(Z[r, v]))) - Z[r, 0])",
    "log_softmax": "Y[r, v] = Z[r, v] - log(sum[v](exp(Z[r, v])))",
    "soft_capped": (
        "let S[r, v] = 30 * tanh(Z[r, v] / 30)\nY[r, v] = exp(S[r, v]) / sum[v](exp(S[r, v]))"
    ),
    "two_stages": (
        "let E[r, v] = exp(Z[r, v])\n"
        "Y[d] = sum[r](sum[v](E[r, v] * W[d, v]) / sum[v](E[r, v]) * X[r, d])"
    ),
    "gate": "Y[r] = sum[v](exp(Z[r, v]) * sigmoid(Z[r, v])) / sum[v](exp(Z[r, v]))",
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_what_the_search_finds(name: str) -> None:
    program = normalise(parse(HEAD + PROGRAMS[name]))
    families = [stabilized(f.ugraph) for f in search(program).families]
    assert families
    # The cheapest of each kind: those of one kernel, and of several.
    safe = [f.ugraph for f in families if not f.faults]
    chosen = [u for u in safe if len(u.kernels) == 1][: 3 if NIGHTLY else 1]
    chosen += [u for u in safe if len(u.kernels) > 1][: 6 if NIGHTLY else 2]
    assert chosen
    for family in chosen:
        field_test(program, family, trials=2, seed=1).require()
        extents = small_extents(family.program, 3, fixed_dims(family.program, family.kernels))
        small = instantiate_small(shrink_ugraph(family, extents))
        check_floats(small, scale=300.0)


def test_at_real_sizes() -> None:
    graph = loss(LOG_PARTS, "tensor A[5, 3] : f32")
    safe = stabilize(graph)
    assert sampled_test(graph.program, safe, seed=2).require().samples > 0
