"""Factors of logits: behind the product, and into the exponential."""

from __future__ import annotations

import re
from dataclasses import replace
from math import e, inf, log2

import numpy as np
import pytest
import several_kernels
from families import stabilize

from mirage_py.codegen.lowering.scales import with_late_scales
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

SPEC = """
T = 20, S = 70, D = 16
Q[T, D], K[S, D], V[S, D] : f16
let a[t, s] = exp(sum[d](Q[t, d] * K[s, d]) / 7) * (s <= t + 40)
O[t, e] = sum[s](a[t, s] * V[s, e]) / sum[s](a[t, s])
"""

KERNEL = """
kernel attend {
  grid t by 16
  %q = load Q[t, d]
  %c = const 7.0
BEFORE
  loop s by 32 {
    %k = load K[s, d]
    %z = matmul[d] %OPERAND, %k
AFTER
    %x = exp %LOGIT
    %m = mask (s <= t + 40)
    %p = mul %m, %x
    %l = sum[s] %p
    %total = accum_sum %l
    %v = load V[s, e]
    %w = matmul[s] %p, %v
    %sum = accum_sum %w
  }
  %o = div %sum, %total
  store O[t, e] = %o
}
"""


def numbered(**places: str) -> str:
    """The kernel with these texts at its places, and with numbers for names."""
    text = KERNEL
    for place, what in places.items():
        text = text.replace(place, what)
    names = re.findall(r"%(\w+) =", text)
    return re.sub(r"%(\w+)", lambda found: f"%{names.index(found[1])}", text)


BEFORE = numbered(BEFORE="  %r = div %q, %c", AFTER="", OPERAND="r", LOGIT="z")
AFTER = numbered(BEFORE="", AFTER="    %y = div %z, %c", OPERAND="q", LOGIT="y")


def plan(kernel: str) -> Plan:
    graph = stabilize(several_kernels.over(parse(SPEC), kernel))
    return Plan(graph, (LaunchConfig(4, (2,)),))


def block(kernel: str) -> BlockGraph:
    (found,) = plan(kernel).ugraph.kernels
    assert isinstance(found, BlockGraph)
    return found


def source(kernel: str) -> str:
    (found,) = emit_triton(plan(kernel))
    return found.text.source


@pytest.mark.parametrize("kernel", [BEFORE, AFTER])
def test_the_factor_goes_into_the_exponential(kernel):
    text = source(kernel)
    assert "tl.dot(q_tile, " in text
    (line,) = (x for x in text.splitlines() if "tl.exp2(where" in x)
    assert f", {log2(e) / 7:.6f}"[:-1] in line
    # Nothing else is multiplied for each logit.
    assert "/ 7" not in text
    assert text.count("* 0.142857") == 1


@pytest.mark.parametrize(("low", "moves"), [(-inf, True), (-1e30, False)])
def test_a_factor_passes_a_mask_of_minus_infinity_alone(low: float, moves: bool):
    """A constant that is seen would have to be divided by it."""
    found = block(AFTER)
    places = [n.args[2] for n in found.nodes if n.op == "where"]
    nodes = tuple(replace(n, attr=low) if i in places else n for i, n in enumerate(found.nodes))
    changed = replace(found, nodes=nodes)
    assert (with_late_scales(changed, plan(AFTER).ugraph.tensors) != changed) == moves


@pytest.mark.parametrize("kernel", [BEFORE, AFTER])
@pytest.mark.parametrize("size", [1.0, 60.0])
def test_the_value_is_the_same(kernel, size):
    rng = np.random.default_rng(0)
    shapes = {"Q": (20, 16), "K": (70, 16), "V": (70, 16)}
    arrays = {n: rng.normal(size=s).astype(np.float16).astype(float) for n, s in shapes.items()}
    arrays["Q"] = (arrays["Q"] * size).astype(np.float16).astype(float)
    logits = arrays["Q"] @ arrays["K"].T / 7
    logits = np.where(np.arange(70) <= np.arange(20)[:, None] + 40, logits, -np.inf)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    want = weights @ arrays["V"] / weights.sum(1, keepdims=True)
    got = run_interpreted(plan(kernel), arrays)["O"]
    np.testing.assert_allclose(got, want, atol=4e-3)


TWICE = """
kernel attend {
  grid t by 16
  %q = load Q[t, d]
  %c = const 7.0
  %r = div %q, %c
  loop s by 32 {
    %k = load K[s, d]
    %z = matmul[d] %r, %k
    %x = exp %z
    %m = mask (s <= t + 40)
    %p = mul %m, %x
    %l = sum[s] %p
    %total = accum_sum %l
  }
  loop s by 32 {
    %k2 = load K[s, d]
    %z2 = matmul[d] %r, %k2
    %x2 = exp %z2
    %n2 = div %x2, %total
    %m2 = mask (s <= t + 40)
    %p2 = mul %m2, %n2
    %v = load V[s, e]
    %w = matmul[s] %p2, %v
    %sum = accum_sum %w
  }
  store O[t, e] = %sum
}
"""


def with_numbers(kernel: str) -> str:
    names = re.findall(r"%(\w+) =", kernel)
    return re.sub(r"%(\w+)", lambda found: f"%{names.index(found[1])}", kernel)


def test_logits_that_are_computed_twice_have_their_factor_in_one_place():
    """Scaled queries in one loop alone: the shift of one loop was not the maximum of the other."""
    text = source(with_numbers(TWICE))
    assert text.count("tl.dot(q_tile, ") == 2
    assert "/ 7" not in text


# The second loop's logits are read by something else too.
SEEN_TWICE = TWICE.replace("%p2 = mul %m2, %n2", "%y2 = mul %n2, %z2\n    %p2 = mul %m2, %y2")


def test_a_factor_that_stays_in_one_loop_stays_in_the_other():
    """Out of the exponential: it is multiplied behind each product, so that none is rounded."""
    text = source(with_numbers(SEEN_TWICE))
    assert text.count("tl.dot(q_tile, ") == 2
    assert len(re.findall(r"= \w+ \* 0\.142857", text)) == 2
    assert f"{log2(e) / 7:.6f}"[:-1] not in text


def test_large_logits_that_are_computed_twice_are_finite():
    """In the thousands: differences between two roundings of a query are exponents."""
    rng = np.random.default_rng(3)
    shapes = {"Q": (20, 16), "K": (70, 16), "V": (70, 16)}
    scale = {"Q": 150, "K": 20, "V": 1}
    arrays = {
        n: (scale[n] * rng.standard_normal(s)).astype(np.float16).astype(float)
        for n, s in shapes.items()
    }
    logits = np.abs(arrays["Q"] @ arrays["K"].T / 7).max()
    # Each result is a mean of values, or of values times logits.
    for kernel, most in (TWICE, 1.0), (SEEN_TWICE, logits):
        found = run_interpreted(plan(with_numbers(kernel)), arrays)["O"]
        assert np.isfinite(found).all()
        assert np.abs(found).max() <= np.abs(arrays["V"]).max() * most * 1.01


PRODUCT = """
kernel product {
  grid b by 4
  loop d by 16 {
    %0 = load X[b, d]
    %1 = const FACTOR
    %2 = const 0.5
    %3 = div %2, %1
    %4 = mul %0, %3
    %5 = load W[d, n]
    %6 = matmul[d] %4, %5
    %7 = accum_sum %6
  }
  store Y[b, n] = %7
}
"""


@pytest.mark.parametrize(
    ("factor", "kind", "moves"), [(3.0, "f16", True), (4.0, "f16", False), (3.0, "f32", False)]
)
def test_a_factor_that_would_round_an_operand_is_behind_the_sum(factor, kind, moves):
    text = f"B = 4, D = 32, N = 8\nX[B, D], W[D, N] : {kind}\n"
    program = parse(f"{text}Y[b, n] = sum[d](X[b, d] * (0.5 / {factor}) * W[d, n])\n")
    graph = several_kernels.over(program, PRODUCT.replace("FACTOR", str(factor)))
    (found,) = graph.kernels
    late = with_late_scales(found, graph.tensors)
    assert (late != found) == moves
    if moves:
        (product,) = (n for n in late.nodes if n.op == "matmul")
        assert [late.nodes[a].op for a in product.args] == ["load", "load"]
        # Once for each result, not in each iteration.
        (store,) = (n for n in late.nodes if n.op == "store")
        scaled = late.nodes[store.args[0]]
        assert scaled.op == "mul"
        assert late.nodes[scaled.args[0]].op == "accum_sum"


BIASED = """
T = 20, S = 70, D = 16
Q[T, D], K[S, D], V[S, D], M[T, S] : f16
O[t, e] = sum[s](softmax[s](sum[d](Q[t, d] * K[s, d]) / 7 + M[t, s]) * V[s, e])
"""
# Their softmax does not take the factor: a bias is added.
BIASED_KERNEL = numbered(
    BEFORE="  %r = div %q, %c",
    OPERAND="r",
    AFTER="    %b = load M[t, s]\n    %y = add %z, %b",
    LOGIT="y",
).replace("mask (s <= t + 40)", "mask (s < 70)")


@pytest.mark.parametrize("bias", [False, True])
def test_a_query_that_is_scaled_first_is_rounded_once_less(bias: bool):
    """Logits of a hundred: rounded once more, they move weights by several per cent."""
    rng = np.random.default_rng(1)
    arrays = {"Q": rng.normal(size=(20, 16)) * 60, "K": rng.normal(size=(70, 16)) * 4}
    arrays["M"] = rng.normal(size=(20, 70))
    arrays = {n: x.astype(np.float16).astype(float) for n, x in arrays.items()}
    arrays["V"] = np.tile(np.arange(70.0)[:, None], (1, 16))
    seen = np.where(np.arange(70) <= np.arange(20)[:, None] + 40, 0.0, -np.inf)
    logits = arrays["Q"] @ arrays["K"].T / 7 + (arrays["M"] if bias else seen)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    want = weights @ arrays["V"] / weights.sum(1, keepdims=True)
    if not bias:
        del arrays["M"]
    spec, kernel = (BIASED, BIASED_KERNEL) if bias else (SPEC, BEFORE)
    graph = stabilize(several_kernels.over(parse(spec), kernel))
    got = run_interpreted(Plan(graph, (LaunchConfig(4, (2,)),)), arrays)["O"]
    np.testing.assert_allclose(got, want, atol=0.1)
