"""Variances of long rows: parts that a block holds, combined, so that rows are read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.task import SearchLimits
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.shortlist import best_families
from mirage_py.search.rewrites.parallel_variance import cuts_into_parts, with_parallel_variance
from mirage_py.search.rewrites.pieces import Timed
from mirage_py.targets import H200
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.rounding.float_screen import FloatScreen
from mirage_py.verify.rounding.kernel_meaning import KernelMeaning
from mirage_py.verify.sizes.small_sizes import instantiate_at_real_sizes


def of_one_kernel(piece: Program) -> list[UGraph]:
    return [f.ugraph for f in search(piece, limits=SearchLimits(max_kernels=1)).families]


def timed(families: Sequence[UGraph]) -> Timed:
    return best_families(families, KernelRanker(H200, "cuda"))


VARIANCE = """M = 2, D = 32768
X[M, D] : f32
let A[m] = sum[d](X[m, d]) / 32768
V[M] : f32
V[m] = sum[d](square(X[m, d] - A[m])) / 32768"""


@pytest.fixture(scope="module")
def program() -> Program:
    return replace(normalise(parse(VARIANCE)), name="2 rows")


@pytest.fixture(scope="module")
def family(program: Program) -> UGraph:
    """Parts of 16384 elements. A file may have any name."""
    found, *_ = with_parallel_variance(program, of_one_kernel, timed, lambda _: True, H200)
    return found


def test_the_kernels_are_equal_to_the_program(program: Program, family: UGraph) -> None:
    first, last = family.kernels
    assert isinstance(first, BlockGraph)
    assert isinstance(last, BlockGraph)
    assert not first.has_loops
    assert [a.dim for a in last.grid] == ["m"]
    assert first.name.isidentifier()
    assert last.name.isidentifier()
    assert FamilyTests(program, trials=2, seed=0).run(family).equal
    # A part whose distance from the mean does not weigh as much as it has elements.
    (size, *_) = (n for n, node in enumerate(last.nodes) if node.op == "size" and node.attr == "d")
    nodes = list(last.nodes)
    nodes[size] = replace(nodes[size], op="const", attr=1.0)
    wrong = replace(family, kernels=(first, replace(last, nodes=tuple(nodes))))
    assert not FamilyTests(program, trials=2, seed=0).run(wrong).equal


def test_nothing_is_lost_far_from_zero(family: UGraph) -> None:
    """Of float32 around 1000 the mean of squares less the square of the mean has one digit."""
    x = np.random.default_rng(0).normal(1000.0, 1.0, (2, 1 << 15)).astype(np.float32)
    x[1, 5] = 1e6
    plan = instantiate_at_real_sizes(family)
    (computed,) = evaluate_ugraph(plan, {"X": x[..., None]}, KernelMeaning(np.float32, 1)).values()
    wanted = x.astype(np.float64).var(1)
    np.testing.assert_allclose(computed[..., 0], wanted, rtol=1e-6)
    # Of few elements a part's mean is far from that of all, and rounding it matters.
    assert not FloatScreen().fault(family)


def test_parts_of_channels_that_lie_side_by_side_are_combined_in_a_loop() -> None:
    """A tile has all parts of 16 channels, a line of memory: of 2048 parts that was too large, and
    no family in one pass fitted any GPU.
    """
    text = """S = 524288, C = 64
X[S, C] : bf16
let A[c] = sum[s](X[s, c]) / 524288
V[C] : f32
V[c] = sum[s](square(X[s, c] - A[c])) / 524288"""
    program = replace(normalise(parse(text)), name="channels_last")

    found, *_ = with_parallel_variance(program, of_one_kernel, timed, lambda _: True, H200)
    ((us, _),) = timed([found])
    # The time of reading the 67 MB twice, and some; one kernel takes eleven times as long.
    assert us < 3 * program.inputs[0].bytes / H200.dram_bytes_per_us
    assert FamilyTests(program, trials=2, seed=0).run(found).equal


def test_a_group_of_few_channels_is_cut_across_its_points() -> None:
    """Its 8 channels are 16 bytes side by side; a tile has the other groups, too. Parts of 1849
    points had 118336 elements with them, and did not fit.
    """
    text = """B = 128, S = 66564, G = 8, C = 8
X[B, S, G, C] : bf16
let A[b, g] = sum[s, c](X[b, s, g, c]) / 532512
V[B, G] : f32
V[b, g] = sum[s, c](square(X[b, s, g, c] - A[b, g])) / 532512"""
    cuts = cuts_into_parts(parse(text), H200)
    assert [(c.dim, c.splits) for c in cuts] == [("s", 387), ("s", 1548)]


def test_short_rows_are_long_where_a_block_reads_those_of_all_channels() -> None:
    """Of one channel, 2 bytes of every 256, an instance norm read eight times what it should."""
    text = """B = 128, S = 15876, C = 128
X[{axes}] : bf16
let A[b, c] = sum[s](X[{axes_of}]) / 15876
V[B, C] : f32
V[b, c] = sum[s](square(X[{axes_of}] - A[b, c])) / 15876"""
    last = parse(text.format(axes="B, S, C", axes_of="b, s, c"))
    first = parse(text.format(axes="B, C, S", axes_of="b, c, s"))
    assert [(c.dim, c.splits) for c in cuts_into_parts(last, H200)] == [("s", 63), ("s", 252)]
    assert not cuts_into_parts(first, H200)


@pytest.mark.parametrize(("behind", "cuts"), [("Z[c, b, s]", 2), ("X[c, b, s]", 0)])
def test_what_is_normalised_may_be_reduced_in_another_way(behind: str, cuts: int) -> None:
    """A batch norm less its mean over each image had no plan (KernelBench L2-15)."""
    text = f"""C = 32, B = 16, S = 65536
X[C, B, S] : bf16
let A[c] = sum[b, s](X[c, b, s]) / 1048576
let V[c] = sum[b, s](square(X[c, b, s] - A[c])) / 1048576
let Z[c, b, s] = (X[c, b, s] - A[c]) / sqrt(V[c] + 0.00001)
Y[c, b, s] = Z[c, b, s] - max[s]({behind})"""
    assert len(cuts_into_parts(parse(text), H200)) == cuts


def test_a_matmul_of_what_is_normalised_is_a_kernel_after_the_statistics() -> None:
    """A 1x1 convolution of a batch norm: of two kernels with its rows none is fast, or fits."""
    text = """B = 32, C = 64, P = 4096, N = 48
X[B, C, P], W[N, C] : bf16
let A[c] = sum[b, p](X[b, c, p]) / 131072
let V[c] = sum[b, p](square(X[b, c, p] - A[c])) / 131072
Y[b, n, p] = sum[c](relu((X[b, c, p] - A[c]) / sqrt(V[c] + 0.00001)) * W[n, c])"""
    program = replace(normalise(parse(text)), name="normed_operand")
    found, *_ = with_parallel_variance(program, of_one_kernel, timed, lambda _: True, H200)
    multiplies = [any(n.op == "matmul" for n in k.nodes) for k in found.kernels]
    assert multiplies == [False, False, True]
    assert FamilyTests(program, trials=2, seed=0).run(found).equal
