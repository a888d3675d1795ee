"""Variances of long rows: parts that a block holds, combined, so that rows are read once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.task import SearchLimits
from mirage_py.search.rewrites.parallel_variance import with_parallel_variance
from mirage_py.targets import H200
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.rounding.float_screen import FloatScreen
from mirage_py.verify.rounding.kernel_meaning import KernelMeaning
from mirage_py.verify.sizes.small_sizes import instantiate_at_real_sizes

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

    def of_one_kernel(piece: Program) -> list[UGraph]:
        return [f.ugraph for f in search(piece, limits=SearchLimits(max_kernels=1)).families]

    found, *_ = with_parallel_variance(program, of_one_kernel, lambda _: True, H200)
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
