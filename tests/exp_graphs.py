"""Kernel graphs with exponentials, for tests of the stabiliser, and what to check of them."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.shifts.safe_exp import add_safe_shifts

# The logits of a row reach this far: exp overflows float64 from 709 on.
LARGE = 900.0


def kernel(ugraph: UGraph, number: int) -> BlockGraph:
    found = ugraph.kernels[number]
    assert isinstance(found, BlockGraph)
    return found


def ops(ugraph: UGraph, number: int) -> list[str]:
    return [n.op for n in kernel(ugraph, number).nodes]


def loads(ugraph: UGraph, number: int) -> list[str]:
    return [n.access.tensor for n in kernel(ugraph, number).nodes if n.op == "load"]


def check(ugraph: UGraph, *, scale: float = LARGE, seed: int = 0) -> UGraph:
    """The stabilised µGraph: valid, equal in the field for any shift, and no overflow in floats."""
    result = stabilized(ugraph)
    assert result.faults == ()
    validate_ugraph(result.ugraph)
    field_test(ugraph.program, result.ugraph, trials=2, seed=seed).require()
    check_floats(result.ugraph, scale=scale, seed=seed)
    return result.ugraph


def check_floats(ugraph: UGraph, *, scale: float, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    inputs = {
        t.name: draw.normal(size=t.shape) * (scale if t.name in ("X", "Q") else 1.0)
        for t in ugraph.program.inputs
    }
    expected = evaluate_program(add_safe_shifts(ugraph.program), inputs, FloatMeaning())
    found = evaluate_ugraph(ugraph, inputs, FloatMeaning())
    for name, value in expected.items():
        assert np.isfinite(value).all()
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-9)


ATTENTION = """
ugraph attention
dim h = 2
dim q = 5
dim p = 3
dim s = 7
dim c = 4
dim e = 6
input Q[2, 5, 4] : f16
input K[2, 21, 4] : f16
input V[2, 21, 6] : f16
output O[2, 5, 6] : f16
tensor L[2, 5, 3] : f32
tensor A[2, 5, 6, 3] : f32
program {
  %0 = load Q[h, q, c]
  %1 = load K[h, p * 7 + s, c]
  %2 = matmul[c] %0, %1
  %3 = exp %2
  MASKED
  %6 = load V[h, p * 7 + s, e]
  %7 = matmul[p, s] %5, %6
  %8 = sum[p, s] %5
  %9 = div %7, %8
  return O[h, q, e] = %9
}
kernel partial {
  grid h by 1, p by 1, q by 2, e by 4
  %0 = load Q[h, q, c]
  loop s by 3 {
    %1 = load K[h, p * 7 + s, c]
    %2 = matmul[c] %0, %1
    %3 = exp %2
    MASKED
    %6 = sum[s] %5
    %7 = accum_sum %6
    %8 = load V[h, p * 7 + s, e]
    %9 = matmul[s] %5, %8
    %10 = accum_sum %9
  }
  store L[h, q, p] = %7
  store A[h, q, e, p] = %10
}
COMBINE
"""
WHOLE = """
kernel combine {
  grid h by 1, q by 2
  %0 = load L[h, q, p]
  %1 = sum[p] %0
  %2 = load A[h, q, e, p]
  %3 = sum[p] %2
  %4 = div %3, %1
  store O[h, q, e] = %4
}
"""
LOOPED = """
kernel combine {
  grid h by 1, q by 2
  loop p by 2 {
    %0 = load L[h, q, p]
    %1 = sum[p] %0
    %2 = accum_sum %1
    %3 = load A[h, q, e, p]
    %4 = sum[p] %3
    %5 = accum_sum %4
  }
  %6 = div %5, %2
  store O[h, q, e] = %6
}
"""
NO_MASK = "%4 = const 1.0\n%5 = mul %3, %4"
CAUSAL = "%4 = mask (p * 7 + s <= q * 4)\n%5 = mul %4, %3"


def attention(combine: str = WHOLE, masked: str = NO_MASK) -> UGraph:
    return parse_ugraph(ATTENTION.replace("MASKED", masked).replace("COMBINE", combine), "text")


SOFTMAX = """
ugraph softmax
dim b = 5
dim r = 2
dim p = 3
dim s = 4
input X[5, 24] : f32
input W[24] : f32
output Y[5] : f32
TENSORS
program {
  %0 = load X[b, (r * 3 + p) * 4 + s]
  %1 = exp %0
  %2 = load W[(r * 3 + p) * 4 + s]
  %3 = mul %1, %2
  %4 = sum[r, p, s] %3
  POWER
  %8 = div %4, %7
  return Y[b] = %8
}
"""
ROW = "%5 = sum[r, p, s] %1\n%6 = const 1.0\n%7 = mul %5, %6"
NORM = "%5 = square %1\n%6 = sum[r, p, s] %5\n%7 = sqrt %6"


def softmax(tensors: str, kernels: str, power: str = ROW) -> UGraph:
    return parse_ugraph(
        SOFTMAX.replace("TENSORS", tensors).replace("POWER", power) + kernels, "text"
    )


LIBRARY = """
ugraph library
dim b = 5
dim s = 6
dim n = 4
input X[5, 6] : f32
input W[6, 4] : f32
output Y[5, 4] : f32
tensor P[5, 6] : f32
tensor T[5, 4] : f32
program {
  %0 = load X[b, s]
  %1 = exp %0
  %2 = load W[s, n]
  %3 = matmul[s] %1, %2
  %4 = sum[s] %1
  %5 = div %3, %4
  return Y[b, n] = %5
}
kernel first {
  grid b by 2SPLIT
  %0 = load X[b, s]
  %1 = exp %0
  store P[b, s] = %1
}
library product = matmul(P, W) -> T
kernel last {
  grid b by 2
  %0 = load P[b, s]
  %1 = sum[s] %0
  %2 = load T[b, n]
  %3 = div %2, %1
  store Y[b, n] = %3
}
"""


def library(split: str = "") -> UGraph:
    return parse_ugraph(LIBRARY.replace("SPLIT", split), "text")


LOSS = """
ugraph loss
dim b = 5
dim p = 3
dim v = 4
input X[5, 12] : f32
input T[5] : f32
output Y[5] : f32
TENSORS
program {
  %0 = load X[b, p * 4 + v]
  %1 = exp %0
  MASKED
  %4 = sum[p, v] %3
  %5 = log %4
  %6 = load T[b]
  %7 = sub %5, %6
  return Y[b] = %7
}
"""
NO_PADDING = "%2 = const 1.0\n%3 = mul %1, %2"
PADDED = "%2 = mask (p * 4 + v <= b)\n%3 = mul %1, %2"
LOG_LOOP = """
kernel loss {
  grid b by 2
  loop v by 3 {
    %0 = load X[b, p * 4 + v]
    %1 = exp %0
    MASKED
    %4 = sum[p, v] %3
    %5 = accum_sum %4
  }
  %6 = log %5
  %7 = load T[b]
  %8 = sub %6, %7
  store Y[b] = %8
}
"""
LOG_PARTS = """
kernel parts {
  grid b by 2, p by 1
  loop v by 3 {
    %0 = load X[b, p * 4 + v]
    %1 = exp %0
    MASKED
    %4 = sum[v] %3
    %5 = accum_sum %4
  }
  store A[b, p] = %5
}
kernel loss {
  grid b by 2
  %0 = load A[b, p]
  %1 = sum[p] %0
  %2 = log %1
  %3 = load T[b]
  %4 = sub %2, %3
  store Y[b] = %4
}
"""
LOG_ROWS = """
kernel sums {
  grid b by 2
  %0 = load X[b, p * 4 + v]
  %1 = exp %0
  MASKED
  %4 = sum[p, v] %3
  store A[b] = %4
}
kernel loss {
  grid b by 2
  %0 = load A[b]
  %1 = log %0
  %2 = load T[b]
  %3 = sub %1, %2
  store Y[b] = %3
}
"""


def loss(kernels: str, tensors: str = "", masked: str = NO_PADDING) -> UGraph:
    text = LOSS.replace("TENSORS", tensors) + kernels
    return parse_ugraph(text.replace("MASKED", masked), "text")
