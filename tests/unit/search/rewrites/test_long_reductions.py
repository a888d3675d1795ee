"""Long reductions with few results, split over many blocks before what reads the results."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import Request, normalise, rank_plans
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rewrites.long_reductions import (
    long_reductions,
    reduced_products,
    with_stored_products,
)
from mirage_py.search.rewrites.parallel_variance import with_parallel_variance
from mirage_py.search.rewrites.pieces import Timed
from mirage_py.targets import H200
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.families import FamilyTests

NORM = """M = {m}, D = {d}
X[M, D] : bf16
let S[] = sum[m, d](X[m, d] * X[m, d])
Z[m, d] = X[m, d] / sqrt(S[] + 0.000001)"""
ROWS = """B = {b}, C = {c}, S = 256, D = 256
X[B, C, S, D] : bf16
let M[b] = sum[c, s, d](X[b, c, s, d]) / {n}
let V[b] = sum[c, s, d](square(X[b, c, s, d] - M[b])) / {n}
Z[b, c, s, d] = (X[b, c, s, d] - M[b]) * rsqrt(V[b] + 0.00001)"""
SOFTMAX = """M = 4, D = 131072
X[M, D] : bf16
Y[m, d] = exp(X[m, d]) / sum[d](exp(X[m, d]))"""
RANGE = """M = 4096, D = 4096
X[M, D] : bf16
let L[] = min[m, d](X[m, d])
let U[] = max[m, d](X[m, d])
Z[m, d] = (X[m, d] - L[]) / (U[] - L[])"""
LOG_SOFTMAX = """M = 4, D = 131072
X[M, D] : bf16
Y[m, d] = X[m, d] - log(sum[d](exp(X[m, d])))"""
PRODUCT = """M = 16, N = 4096, D = 65536
X[M, D], W[D, N] : bf16
Y[m, n] = sum[d](X[m, d] / sqrt(sum[d](X[m, d] * X[m, d])) * W[d, n])"""

NORMED_PRODUCT = """M = {m}, N = 32, D = 16
X[M, D], W[D, N] : bf16
let P[m, n] = sum[d](X[m, d] * W[d, n])
let A[n] = sum[m](P[m, n]) / {m}
let V[n] = sum[m](square(P[m, n] - A[n])) / {m}
Y[m, n] = (P[m, n] - A[n]) / sqrt(V[n] + 0.00001)"""


def rows(b: int, c: int) -> str:
    return ROWS.format(b=b, c=c, n=c << 16)


def test_the_results_are_stored_as_they_are_read() -> None:
    program = normalise(parse(NORM.format(m=4096, d=14336)))
    (value,) = long_reductions(program, H200)
    assert (program.nodes[value].op, program.nodes[value].dims) == ("sqrt", ())
    program = normalise(parse(rows(16, 64)))
    mean, deviation = long_reductions(program, H200)
    assert program.nodes[mean].dims == program.nodes[deviation].dims == ("b",)
    assert mean < deviation
    program = normalise(parse(LOG_SOFTMAX))
    (value,) = long_reductions(program, H200)
    assert (program.nodes[value].op, program.nodes[value].dims) == ("log", ("m",))


@pytest.mark.parametrize(
    "text",
    [
        NORM.format(m=128, d=256),  # one block does it
        rows(512, 4),  # a block for each multiprocessor, and more
        SOFTMAX,  # a sum of exponentials has the scale of its maximum
        PRODUCT,
        "M = 4096, D = 14336\nX[M, D] : bf16\nL[1] : f32\nL[0] = sum[m, d](X[m, d] * X[m, d])",
    ],
    ids=["short", "many", "softmax", "matmul", "not read again"],
)
def test_programs_that_are_not_cut(text: str) -> None:
    assert long_reductions(normalise(parse(text)), H200) == ()


@pytest.mark.parametrize(
    ("text", "kernels", "faster"),
    [(NORM.format(m=4096, d=14336), 3, 20), (RANGE, 3, 15), (rows(16, 64), 3, 3)],
    ids=["norm", "two in one pass", "layer_norm"],
)
def test_many_blocks_share_each_reduction(text: str, kernels: int, faster: float) -> None:
    """With a block for each result the norm was predicted to take 5.4 ms; reading X takes 25 us."""
    program = normalise(parse(text))
    found = rank_plans(program, H200, Request("h200", "triton", effort="quick"))
    times = {True: inf, False: inf}
    for instance in found.instances:
        ours = [k for k in instance.plan.ugraph.kernels if isinstance(k, BlockGraph)]
        reading = [k for k in ours if any(t.name == "X" for t in _read(k, program))]
        are_split = all(any("_part" in a.dim for a in k.grid) for k in reading)
        assert len(ours) == kernels or not are_split
        times[are_split] = min(times[are_split], instance.estimate.time_us)
    assert times[False] > faster * times[True]


def test_the_kernels_compute_the_program() -> None:
    program = normalise(parse(rows(2, 1)))
    found = rank_plans(program, H200, Request("h200", "cuda", effort="quick"))
    plan = max((i.plan for i in found.instances), key=lambda p: len(p.ugraph.kernels))
    assert len(plan.ugraph.kernels) > 2
    draw = np.random.default_rng(0).normal(2.0, 1.0, (2, 1, 256, 256)).astype(np.float32)
    x = (draw.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)  # bfloat16
    (computed,) = run_emulated(plan, {"X": x}).values()
    variance = x.var((1, 2, 3), keepdims=True)
    wanted = (x - x.mean((1, 2, 3), keepdims=True)) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(computed, wanted, rtol=2**-8, atol=1e-3)


def test_what_reads_the_results_goes_through_memory_in_sequence() -> None:
    """In the order of the parts it took 1.89 ms for 3.8 GB on an H200, so 1.76; the parts are
    summed as they are.
    """
    program = normalise(parse(NORM.format(m=4096, d=14336)))
    for backend in ("triton", "cuda"):
        found = rank_plans(program, H200, Request("h200", backend, effort="quick"))
        plan = found.instances[0].plan
        last = plan.ugraph.kernels[-1]
        assert isinstance(last, BlockGraph)
        assert [a.dim for a in last.grid] == ["m_d", "m_d_part"]


def _read(kernel: BlockGraph, program: Program) -> list[Tensor]:
    names = {n.access.tensor for n in kernel.nodes if n.op == "load"}
    return [t for t in program.inputs if t.name in names]


def test_a_matmul_with_a_batch_norm_after_it_is_a_kernel_of_its_own() -> None:
    """No block holds a matmul and all rows of its result: no family of the whole fits any GPU."""
    program = normalise(parse(NORMED_PRODUCT.format(m=1 << 17)))
    (product,) = reduced_products(program)
    assert program.nodes[product].op == "matmul"

    def of_one_kernel(piece: Program) -> list[UGraph]:
        return [f.ugraph for f in search(piece, limits=SearchLimits(max_kernels=1)).families]

    def timed(families: Sequence[UGraph]) -> Timed:
        return [(1.0, u) for u in families[:1]]

    def best(piece: Program) -> Timed:
        in_one_pass = with_parallel_variance(piece, of_one_kernel, timed, lambda _: True, H200)
        return [(1.0, u) for u in in_one_pass or of_one_kernel(piece)[:1]]

    family, *_ = with_stored_products(program, best)
    first, *others = [k for k in family.kernels if isinstance(k, BlockGraph)]
    assert any(n.op == "matmul" for n in first.nodes)
    assert not any(n.op == "matmul" for k in others for n in k.nodes)
    assert len({k.name for k in family.kernels}) == len(family.kernels) == 4
    assert FamilyTests(program, trials=2, seed=0).run(family).equal


@pytest.mark.parametrize("text", [PRODUCT, NORMED_PRODUCT.format(m=128)], ids=["before", "short"])
def test_matmuls_that_stay_with_their_reductions(text: str) -> None:
    assert reduced_products(normalise(parse(text))) == ()
