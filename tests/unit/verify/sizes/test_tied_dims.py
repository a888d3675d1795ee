from __future__ import annotations

from dataclasses import replace

import pytest

from mirage_py.errors import ValidationError
from mirage_py.runtime.cpu.reduced import reduced
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.rounding.float_screen import FloatScreen
from mirage_py.verify.sizes.tied_dims import TiedDims, tied_dims

# The input is read by rows of two names, and a library multiplies all of it.
RESIDUAL = """
ugraph residual
dim m = 8
dim k = 64
dim n = 96
dim j = 64
input X[8, 64] : f32
input W[64, 96] : f32
input V[96, 64] : f32
output Y[8, 64] : f32
tensor P[8, 96] : f32
program {
  %0 = load X[m, k]
  %1 = load W[k, n]
  %2 = matmul[k] %0, %1 : [m, n]
  %3 = silu %2 : [m, n]
  %4 = load V[n, j]
  %5 = matmul[n] %3, %4 : [m, j]
  %6 = load X[m, j]
  %7 = add %5, %6 : [m, j]
  return Y[m, j] = %7
}
library product = matmul(X, W) -> P
kernel last {
  grid m by 4, j by 32
  %0 = load P[m, n]  # m <- grid 0
  %1 = silu %0 : [m, n]
  %2 = load V[n, j]  # j <- grid 1
  %3 = matmul[n] %1, %2 : [m, j]
  %4 = load X[m, j]  # m <- grid 0, j <- grid 1
  %5 = add %3, %4 : [m, j]
  store Y[m, j] = %5  # m -> grid 0, j -> grid 1
}
"""
# Batched: of K one reader takes chunk c, the other chunk e, and a library all chunks.
CHUNKS = """
ugraph chunks
dim c = 4
dim e = 4
dim s = 16
dim d = 8
dim f = 32
input K[4, 16, 8] : f32
input V[4, 8, 32] : f32
input M[4, 4] : f32
output Y[4, 16, 8] : f32
output Z[4, 16, 32] : f32
tensor P[4, 16, 32] : f32
program {
  %0 = load M[c, e]
  %1 = load K[e, s, d]
  %2 = mul %0, %1 : [c, e, s, d]
  %3 = sum[e] %2 : [c, s, d]
  %4 = load K[c, s, d]
  %5 = load V[c, d, f]
  %6 = matmul[d] %4, %5 : [c, s, f]
  return Y[c, s, d] = %3
  return Z[c, s, f] = %6
}
kernel mix {
  grid c by 1, s by 8
  %0 = load M[c, e]  # c <- grid 0
  %1 = load K[e, s, d]  # s <- grid 1
  %2 = mul %0, %1 : [c, e, s, d]
  %3 = sum[e] %2 : [c, s, d]
  store Y[c, s, d] = %3  # c -> grid 0, s -> grid 1
}
library product = matmul(K, V) -> P
kernel copy {
  grid c by 1, s by 8
  %0 = load P[c, s, f]  # c <- grid 0, s <- grid 1
  store Z[c, s, f] = %0  # c -> grid 0, s -> grid 1
}
"""
# One column of the library's result is read at an offset: that is how all of its columns are read.
HALVES = """
ugraph halves
dim m = 8
dim k = 64
dim n = 32
input X[8, 64] : f32
input W[64, 64] : f32
output Y[8, 32] : f32
tensor P[8, 64] : f32
program {
  %0 = load X[m, k]
  %1 = load W[k, n]
  %2 = matmul[k] %0, %1 : [m, n]
  %3 = load W[k, n + 32]
  %4 = matmul[k] %0, %3 : [m, n]
  %5 = mul %2, %4 : [m, n]
  return Y[m, n] = %5
}
library product = matmul(X, W) -> P
kernel last {
  grid m by 4, n by 16
  %0 = load P[m, n]  # m <- grid 0, n <- grid 1
  %1 = load P[m, n + 32]  # m <- grid 0, n <- grid 1
  %2 = mul %0, %1 : [m, n]
  store Y[m, n] = %2  # m -> grid 0, n -> grid 1
}
"""
# A library multiplies what a kernel stores.
HANDED_OVER = """
ugraph handed_over
dim m = 8
dim k = 64
dim n = 32
input X[8, 64] : f32
input W[64, 32] : f32
output Y[8, 32] : f32
tensor H[8, 64] : f32
program {
  %0 = load X[m, k]
  %1 = silu %0 : [m, k]
  %2 = load W[k, n]
  %3 = matmul[k] %1, %2 : [m, n]
  return Y[m, n] = %3
}
kernel first {
  grid m by 4, k by 16
  %0 = load X[m, k]  # m <- grid 0, k <- grid 1
  %1 = silu %0 : [m, k]
  store H[m, k] = %1  # m -> grid 0, k -> grid 1
}
library product = matmul(H, W) -> Y
"""
# Half of the columns of an operand are added: no other size fits the product and the half.
SLICE = (
    RESIDUAL.replace("dim j = 64", "dim j = 32")
    .replace("[96, 64]", "[96, 32]")
    .replace("output Y[8, 64]", "output Y[8, 32]")
    .replace("load X[m, j]", "load X[m, j + 32]")
)
TIES = {
    "residual": (RESIDUAL, TiedDims((("k", "j"),), ())),
    "chunks": (CHUNKS, TiedDims((("c", "e"),), ())),
    "halves": (HALVES, TiedDims()),
    "slice": (SLICE, TiedDims((), ("k", "j"))),
}


def graph(name: str) -> UGraph:
    found = parse_ugraph(TIES[name][0])
    validate_ugraph(found)
    return found


@pytest.mark.parametrize("name", TIES)
def test_what_a_library_takes_whole_has_one_size(name):
    found = graph(name)
    assert tied_dims(found.program, found.kernels) == TIES[name][1]
    blocks = [k for k in found.kernels if isinstance(k, BlockGraph)]
    # Without a library call nothing is tied.
    assert tied_dims(found.program, blocks) == TiedDims()


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("seed", range(4))
def test_such_graphs_are_found_equal(name, seed):
    found = graph(name)
    evidence = field_test(found.program, found, seed=seed)
    assert evidence.equal, evidence.mismatch
    groups = TIES[name][1].groups
    for extents in evidence.small_extents:
        assert all(len({extents[d] for d in group}) == 1 for group in groups)
        free = [s for d, s in extents.items() if not any(d in g[1:] for g in groups)]
        assert name == "slice" or len({*free}) == len(free)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("residual", "%4 = load X[m, j]  #", "%4 = load V[m, j]  #"),
        ("residual", "%5 = add %3, %4", "%5 = sub %3, %4"),
        ("chunks", "%0 = load M[c, e]  #", "%0 = load M[e, c]  #"),
        ("halves", "%1 = load P[m, n + 32]", "%1 = load P[m, n]"),
        ("slice", "%4 = load X[m, j + 32]  #", "%4 = load X[m, j]  #"),
    ],
)
def test_wrong_ones_are_still_refused(name, right, wrong):
    text = TIES[name][0]
    assert right in text
    damaged = parse_ugraph(text.replace(right, wrong))
    assert not field_test(damaged.program, damaged, seed=0).equal


@pytest.mark.parametrize("name", TIES)
def test_reduced_plans_keep_ties(name):
    found = graph(name)
    options = tuple(LaunchConfig() for _ in found.kernels)
    _, plan = reduced(found.program, Plan(found, options))
    validate_ugraph(plan.ugraph)
    sizes = plan.ugraph.program.sizes
    assert all(len({sizes[d] for d in group}) == 1 for group in TIES[name][1].groups)


def test_what_nothing_writes_is_an_error_of_the_ugraph():
    found = parse_ugraph(HANDED_OVER)
    assert field_test(found.program, found, seed=0).equal
    without = replace(found, kernels=found.kernels[1:])
    with pytest.raises(ValidationError, match="'H' is read before it is written"):
        field_test(found.program, without, seed=0)
    into_itself = replace(found.kernels[1], result="H")
    with pytest.raises(ValidationError, match="'H' is read before it is written"):
        field_test(found.program, replace(found, kernels=(into_itself,)), seed=0)


# A library multiplies all columns of W, of which another kernel reads as many by another name.
COLUMNS = """
ugraph columns
dim m = 8
dim k = 64
FIRST
OTHER
input X[8, 64] : f32
input W[64, 96] : f32
output Y[8, 96] : f32
output Z[64] : f32
program {
  %0 = load X[m, k]
  %1 = load W[k, n]
  %2 = matmul[k] %0, %1 : [m, n]
  %3 = load W[k, j]
  %4 = sum[j] %3 : [k]
  return Y[m, n] = %2
  return Z[k] = %4
}
library product = matmul(X, W) -> Y
kernel last {
  grid k by 16
  %0 = load W[k, j]  # k <- grid 0
  %1 = sum[j] %0 : [k]
  store Z[k] = %1  # k -> grid 0
}
"""


@pytest.mark.parametrize("first", ["n", "j"])
def test_the_screen_of_rounding_evaluates_library_calls_at_equal_sizes(first):
    other = "j" if first == "n" else "n"
    text = COLUMNS.replace("FIRST", f"dim {first} = 96").replace("OTHER", f"dim {other} = 96")
    assert FloatScreen().fault(parse_ugraph(text)) == ""
