"""Wrong ways to combine the splits of a cluster: the field test refuses each."""

from __future__ import annotations

import clusters
import pytest
from several_kernels import over

from mirage_py.axioms.proof.prove import prove
from mirage_py.errors import MirageError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.split_dim import split_dim
from mirage_py.verify.field_test.field_test import field_test

ATTENTION = clusters.attention_program()
SPLIT = split_dim(ATTENTION, "s", 4)
KERNEL = clusters.ATTENTION_KERNEL.format(q=16, e=32, s=64, part=120)

# Name -> edits of the last section of attention. What lacks a rescaling only is right in floats
# wherever the splits happen to have equal maxima.
ATTACKS = {
    "sums of parts are not rescaled": (("mul %10, %17", "mul %10, %1"),),
    "products of parts are not rescaled": (("mul %13, %17", "mul %13, %1"),),
    "parts are rescaled by their own maxima": (("%16 = sub %6, %15", "%16 = sub %6, %6"),),
    "parts are rescaled the other way": (("%16 = sub %6, %15", "%16 = sub %15, %6"),),
    "the maximum over the cluster is left out": (
        ("%14 = max[s_part] %6", "%14 = sub %6, %1"),
        ("%15 = shift %14", "%15 = neg %14"),
    ),
    "each part has a shift of its own": (("%14 = max[s_part] %6", "%14 = add %6, %1"),),
    "parts are divided, then added": (
        ("%19 = sum[s_part] %18", "%19 = max[s_part] %18"),
        (
            "%20 = mul %13, %17\n  %21 = sum[s_part] %20",
            "%20 = div %13, %10\n  %21 = sum[s_part] %20",
        ),
        ("%22 = div %21, %19", "%22 = mul %21, %1"),
    ),
    "a maximum in the place of a sum": (("%19 = sum[s_part] %18", "%19 = max[s_part] %18"),),
    "the products of all blocks but the last": (
        (
            "%21 = sum[s_part] %20\n  %22 = div %21, %19\n  store O[h, q, e] = %22",
            (
                "%21 = mask (s_part <= 2)\n  %22 = mul %20, %21\n  %23 = sum[s_part] %22\n"
                "  %24 = div %23, %19\n  store O[h, q, e] = %24"
            ),
        ),
    ),
}


def attack(*edits: tuple[str, str]) -> UGraph:
    kernel = KERNEL
    for old, new in edits:
        assert old in kernel
        kernel = kernel.replace(old, new)
    return over(SPLIT, kernel)


def refused(program, build) -> bool:
    """By the field test, or by the rules; and never proved."""
    try:
        graph = build()
        validate_ugraph(graph)
        equal = field_test(program, graph, trials=2, seed=0).equal
    except MirageError:
        return True
    assert equal or prove(program, graph) is None
    return not equal


def test_the_kernel_that_they_spoil_is_right():
    assert not refused(ATTENTION, attack)


@pytest.mark.parametrize("name", ATTACKS)
def test_attention(name):
    assert refused(ATTENTION, lambda: attack(*ATTACKS[name]))


TOTAL = """
B = 6, D = 40, N = 10
X[B, D], W[D, N] : f32
Y[b, n] = sum[d](X[b, d] * W[d, n]) / (1 + sum[d](X[b, d]^2))
"""
TOTAL_KERNEL = """
kernel k {
  grid n by 4, d_part by 1 in cluster, b by 2
  loop d by 4 {
    %0 = load X[b, d_part * 10 + d]
    %1 = load W[d_part * 10 + d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
    %4 = square %0
    %5 = sum[d] %4
    %6 = accum_sum %5
  }
  %7 = sum[d_part] %3
  %8 = sum[d_part] %6
  %9 = const 1.0
  %10 = add %8, %9
  %11 = div %7, %10
  store Y[b, n] = %11
}
"""
SUMS = {
    "a sum over the cluster is left out": ("store Y[b, n] = %11", "store Y[b, n] = %3"),
    "one is multiplied instead of added": ("add %8, %9", "mul %8, %9"),
    "added before the sum": (
        "%8 = sum[d_part] %6\n  %9 = const 1.0\n  %10 = add %8, %9",
        "%8 = const 1.0\n  %9 = add %6, %8\n  %10 = sum[d_part] %9",
    ),
    "a sum over rows": ("%8 = sum[d_part] %6", "%8 = sum[b] %6"),
    "a sum over rows as well": ("%8 = sum[d_part] %6", "%8 = sum[b, d_part] %6"),
    "an axis of the wrong kind": ("d_part by 1 in cluster", "d_part by 1"),
    "parts of another length": ("load W[d_part * 10 + d", "load W[d * 4 + d_part"),
    "the same part for all": ("load W[d_part * 10 + d", "load W[30 + d"),
    "quotients of parts": (
        (
            "%7 = sum[d_part] %3\n  %8 = sum[d_part] %6\n  %9 = const 1.0\n  %10 = add %8, %9\n"
            "  %11 = div %7, %10"
        ),
        (
            "%7 = sum[d_part] %6\n  %8 = const 1.0\n  %9 = add %7, %8\n  %10 = div %3, %6\n"
            "  %11 = sum[d_part] %10"
        ),
    ),
}


def test_the_sums_that_they_spoil_are_right():
    program = parse(TOTAL)
    assert not refused(program, lambda: over(split_dim(program, "d", 4), TOTAL_KERNEL))


@pytest.mark.parametrize("name", SUMS)
def test_sums(name):
    program = parse(TOTAL)
    old, new = SUMS[name]
    assert old in TOTAL_KERNEL
    kernel = TOTAL_KERNEL.replace(old, new)
    assert refused(program, lambda: over(split_dim(program, "d", 4), kernel))
