"""Every wrong µGraph that floats can tell from the right one is refused by the field test."""

from __future__ import annotations

from collections import Counter

import clusters
import numpy as np
import pytest
import samples
import several_kernels
from adversarial import kernel_mutations  # noqa: F401 (registers its mutations)
from adversarial.mutations import mutants
from families import stabilize
from naive import naive_plan
from nightly import NIGHTLY

from mirage_py.errors import InputError, ValidationError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import _SmallSizes, field_test

GATED_MLP = """
ugraph gated_mlp
dim b = 8
dim d = 64
dim n = 48
input X[8, 64] : f16
input U[64, 48] : f16
input W[64, 48] : f16
output Y[8, 48] : f16
program {
  %0 = load X[b, d]
  %1 = load U[d, n]
  %2 = load W[d, n]
  %3 = matmul[d] %0, %1
  %4 = silu %3
  %5 = matmul[d] %0, %2
  %6 = mul %4, %5
  return Y[b, n] = %6
}
kernel fused {
  grid b by 8, n by 16
  loop d by 32 {
    %0 = load X[b, d]
    %1 = load U[d, n]
    %2 = load W[d, n]
    %3 = matmul[d] %0, %1
    %4 = accum_sum %3
    %5 = matmul[d] %0, %2
    %6 = accum_sum %5
  }
  %7 = silu %4
  %8 = mul %7, %6
  store Y[b, n] = %8
}
"""

LAYER_NORM = """
ugraph layer_norm
dim b = 8
dim d = 64
input X[8, 64] : f16
input G[64] : f16
input H[64] : f16
output Y[8, 64] : f16
output M[8] : f32
output S[8] : f32
program {
  %0 = load X[b, d]
  %1 = sum[d] %0
  %2 = size d
  %3 = div %1, %2
  %4 = sub %0, %3
  %5 = square %4
  %6 = sum[d] %5
  %7 = div %6, %2
  %8 = const 1e-05
  %9 = add %7, %8
  %10 = sqrt %9
  %11 = div %4, %10
  %12 = load G[d]
  %13 = mul %11, %12
  %14 = load H[d]
  %15 = add %13, %14
  return Y[b, d] = %15
  return M[b] = %3
  return S[b] = %10
}
kernel rows {
  grid b by 4
  loop d by 16 {
    %0 = load X[b, d]
    %1 = sum[d] %0
    %2 = accum_sum %1
  }
  %3 = size d
  %4 = div %2, %3
  loop d by 16 {
    %5 = load X[b, d]
    %6 = sub %5, %4
    %7 = square %6
    %8 = sum[d] %7
    %9 = accum_sum %8
  }
  %10 = div %9, %3
  %11 = const 1e-05
  %12 = add %10, %11
  %13 = sqrt %12
  store M[b] = %4
  store S[b] = %13
  loop d by 32 {
    %16 = load X[b, d]
    %17 = sub %16, %4
    %18 = div %17, %13
    %19 = load G[d]
    %20 = mul %18, %19
    %21 = load H[d]
    %22 = add %20, %21
    store Y[b, d] = %22
  }
}
"""

WINDOWED = """
T = 64, S = 64, C = 16
Q[T, C], K[S, C], V[S, C] : f16
let Z[t, s] = sum[c](Q[t, c] * K[s, c]) * 0.25
let P[t, s] = where(s <= t & s > t - 16, exp(Z[t, s]), 0)
O[t, c] = sum[s](P[t, s] * V[s, c]) / sum[s](P[t, s])
"""

# How many mutants of a graph are tested; they are taken evenly from all kinds.
PER_GRAPH = 24 if NIGHTLY else 12
# Fewer where a grid of four axes makes each trial long: about one of every kind.
PER_LARGE_GRAPH = PER_GRAPH // 2
LARGE = ("split_causal_attention_at_size",)


def windowed_attention() -> UGraph:
    return stabilize(naive_plan(parse(WINDOWED), {"t": 16}).ugraph)


def unsplit_attention() -> UGraph:
    return stabilize(naive_plan(samples.ugraph("split_attention").program, {"h": 1}).ugraph)


GRAPHS = {
    **{
        name: (lambda name=name: samples.ugraph(name))
        for name in (
            "rms_norm_matmul",
            "rms_norm_matmul_two_loops",
            "rms_norm_matmul_library",
            "softmax",
            "attention",
            "split_attention",
            "split_matmul_added",
            "residual_gated",
            "row_maximum",
            "rotary",
        )
    },
    **{
        f"{name}_at_size": (lambda name=name: several_kernels.ugraph(name))
        for name in ("split_rms_norm_matmul", "split_causal_attention", "library_epilogue")
    },
    "gated_mlp": lambda: parse_ugraph(GATED_MLP, "gated_mlp"),
    "layer_norm": lambda: parse_ugraph(LAYER_NORM, "layer_norm"),
    "cluster_attention": lambda: (
        clusters.cluster_attention(heads=1, rows=7, keys=40, width=9, tiles=(4, 4, 5)).ugraph
    ),
    "cluster_rms_norm_matmul": lambda: (
        clusters.cluster_rms_norm_matmul(b=7, d=40, n=9, tiles=(4, 4, 5)).ugraph
    ),
    "cluster_lora": lambda: clusters.cluster_lora(b=7, d=40, n=9, r=3, tiles=(4, 4, 5)).ugraph,
    "windowed_attention": windowed_attention,
    "unsplit_attention": unsplit_attention,
}


def chosen(graph: UGraph, limit: int = PER_GRAPH) -> list[tuple[str, UGraph]]:
    """Mutants of all kinds in turn, and of those as many as the limit says, evenly."""
    kinds: dict[str, list[tuple[str, UGraph]]] = {}
    for name, wrong in mutants(graph):
        kinds.setdefault(name.split()[0], []).append((name, wrong))
    rounds = max(len(k) for k in kinds.values())
    turns = [k[n] for n in range(rounds) for k in kinds.values() if n < len(k)]
    return turns[:: max(1, len(turns) // limit)][:limit]


def differs_in_floats(program: Program, wrong: UGraph) -> bool:
    """Whether the mutant is ill-formed or computes something else, in float64."""
    try:
        small_program, small = _SmallSizes(program, wrong).drawn(11)
        validate_ugraph(small)
    except (InputError, ValidationError):
        return True
    for seed in range(2):
        inputs = samples.float_inputs(small_program, seed)
        expected = evaluate_program(small_program, inputs, FloatMeaning())
        try:
            found = evaluate_ugraph(small, inputs, FloatMeaning())
        except ValidationError:
            return True
        for name, values in expected.items():
            if not np.allclose(found[name], values, rtol=1e-8, atol=1e-12, equal_nan=True):
                return True
    return False


def refused(program: Program, wrong: UGraph) -> bool:
    try:
        return not field_test(program, wrong, seed=2).equal
    except (InputError, ValidationError):
        return True


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_wrong_graphs_are_refused(name):
    graph = GRAPHS[name]()
    assert field_test(graph.program, graph, seed=2).equal
    accepted = [
        kind
        for kind, wrong in chosen(graph, PER_LARGE_GRAPH if name in LARGE else PER_GRAPH)
        if differs_in_floats(graph.program, wrong) and not refused(graph.program, wrong)
    ]
    assert accepted == []


def test_there_are_enough():
    counts = Counter(name.split()[0] for make in GRAPHS.values() for name, _ in chosen(make()))
    assert counts.total() >= 20 * PER_GRAPH - 80
    assert len(counts) > 30
