"""Kernels that hold rows, with each row shared by the blocks of a cluster."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from families import instances
from unit.search.kernels import FACTORED, block_of, of_kind

from mirage_py.axioms.proof.prove import prove
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.search.clusters.cluster_rows import shared_rows
from mirage_py.search.enumerate.search import SearchResult, search
from mirage_py.search.extract.family import CLUSTER, ONE_KERNEL
from mirage_py.search.rank.forms import splits_worth_trying
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.targets import H200
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.field_test.families import FamilyTests

SPECS = {
    "softmax": "B = 6, N = 128\nX[B, N] : f16\nY[b, n] = softmax[n](X[b, n])",
    "rms_norm": (
        "B = 6, N = 128\nX[B, N], G[N] : f16\n"
        "Y[b, n] = X[b, n] * G[n] / sqrt(mean[n](X[b, n]^2) + 1e-6)"
    ),
    "two outputs": (
        "B = 6, N = 128\nX[B, N] : f32\nlet M[b] = mean[n](X[b, n])\n"
        "Y[b, n] = X[b, n] - M[b]\nV[b] = mean[n]((X[b, n] - M[b])^2)"
    ),
    "a product": "B = 6, N = 128\nX[B, N], W[N] : f16\nY[b, n] = X[b, n] * sum[n](X[b, n] * W[n])",
}


@cache
def program(name: str) -> Program:
    return normalise(parse(SPECS[name]))


@cache
def found(name: str) -> SearchResult:
    return search(program(name), limits=replace(FACTORED, max_cluster_blocks=16))


@pytest.mark.parametrize("name", SPECS)
def test_rows_are_shared_and_the_result_is_the_same(name):
    families = of_kind(found(name), CLUSTER)
    assert families
    tests = FamilyTests(program(name), trials=1, seed=0)
    for family in families:
        validate_ugraph(family.ugraph)
        assert block_of(family).cluster_dims == ("n_part",)
        stable = stabilized(family.ugraph)
        assert not stable.faults
        assert tests.run(stable.ugraph).require().equal
        assert prove(program(name), stable.ugraph) is not None


@pytest.mark.parametrize("name", SPECS)
def test_instances_in_floats(name):
    graph = stabilized(of_kind(found(name), CLUSTER)[0].ugraph).ugraph
    draw = np.random.default_rng(1)
    inputs = {t.name: draw.normal(size=t.shape) for t in program(name).inputs}
    want = evaluate_program(program(name), inputs, FloatMeaning())
    for instance in instances(graph, H200, 3):
        assert instance.plan.backend == "cuda"
        got = evaluate_ugraph(instance.plan.ugraph, inputs, FloatMeaning())
        for output in want:
            np.testing.assert_allclose(got[output], want[output], rtol=1e-6)


def test_the_maximum_of_a_softmax_goes_over_the_cluster():
    (family,) = of_kind(found("softmax"), CLUSTER)
    (block,) = stabilized(family.ugraph).ugraph.kernels
    (peak,) = [n for n in block.nodes if n.op == "max"]
    assert peak.reduced == ("n_part", "n")


def test_loops_and_short_rows_are_left_alone():
    for family in of_kind(found("rms_norm"), ONE_KERNEL):
        looped = any(s.loop is not None for s in block_of(family).sections)
        assert looped == (not list(shared_rows(family)))
    short = normalise(parse("B = 6, N = 32\nX[B, N] : f16\nY[b, n] = softmax[n](X[b, n])"))
    assert not of_kind(search(short, limits=replace(FACTORED, max_cluster_blocks=16)), CLUSTER)


def test_few_long_rows_are_faster_so():
    spec = "B = 16, N = 65536\nX[B, N] : f16\nY[b, n] = softmax[n](X[b, n])"
    long = search(normalise(parse(spec)), limits=replace(FACTORED, max_cluster_blocks=16))
    families = [stabilized(f.ugraph).ugraph for f in long.families]
    (first, *_) = rank(families, H200, 12, "cuda")
    assert first.kind == "cluster"
    (before, *_) = rank(families, H200, 12)
    assert first.estimate.time_us < before.estimate.time_us


def test_as_many_blocks_share_rows_as_can_exchange_totals():
    """Fourteen share the rows of an image well, but no kernel is emitted for so many: the plan of a
    network's part took the whole network with it.
    """
    text = "B = 4, H = 112, W = 112\nX[B, H, W] : f16\n"
    text += "Y[b, h, w] = X[b, h, w] / sqrt(sum[h, w](X[b, h, w]^2) + 1)"
    image = normalise(parse(text))
    families = of_kind(search(image, limits=replace(FACTORED, max_cluster_blocks=16)), CLUSTER)
    graphs = [stabilized(family.ugraph).ugraph for family in families]
    counts = {n for g in graphs for c in splits_worth_trying(g, H200) for n in c.values()}
    assert counts == {2, 4, 8, 16}
    for instance in rank(graphs, H200, 12, "cuda"):
        emit_kernels(instance.plan)
