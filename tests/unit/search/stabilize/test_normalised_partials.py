"""Partial results of a softmax stored as averages in half precision: same function, no overflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import several_kernels

from mirage_py.axioms.proof.prove import prove
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.search.enumerate.search import search
from mirage_py.search.stabilize.normalised_partials import with_normalised_partials
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.ugraph.ir.dtypes import F16, F32
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.families import FamilyTests

ATTENTION = ("split_attention", "split_causal_attention")


def normalised(name: str) -> UGraph:
    found = with_normalised_partials(several_kernels.ugraph(name))
    assert found is not None
    return found


def attention(arrays: dict[str, np.ndarray], *, causal: bool) -> np.ndarray:
    scores = np.einsum("hqc,hsc->hqs", arrays["Q"], arrays["K"]) * 0.125
    if causal:
        q, s = np.arange(20)[:, None], np.arange(480)[None, :]
        scores = np.where(s <= q + 460, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqs,hse->hqe", weights / weights.sum(-1, keepdims=True), arrays["V"])


def draw(scale: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {"Q": (2, 20, 64), "K": (2, 480, 64), "V": (2, 480, 64)}
    found = {n: rng.normal(size=shape).astype(np.float16) for n, shape in shapes.items()}
    found["Q"] = (found["Q"] * np.float16(scale)).astype(np.float16)
    return {n: x.astype(np.float64) for n, x in found.items()}


@pytest.mark.parametrize("name", ATTENTION)
def test_averages_are_stored_as_halves_and_statistics_are_not(name):
    types = {t.name: t.dtype for t in normalised(name).intermediates}
    assert types == {"M": F32, "L": F32, "A": F16}


@pytest.mark.parametrize("name", ATTENTION)
def test_the_field_test_and_the_laws_find_it_equal(name):
    program = normalise(several_kernels.program(name))
    found = normalised(name)
    assert FamilyTests(program, trials=2, seed=0).run(found).equal
    assert prove(program, found) is not None


ONE_TOKEN = """S = 512, D = 64
Q[8, D], K[S, D], V[S, D] : f16
let z[r, s] = sum[d](Q[r, d] * K[s, d]) / sqrt(D)
O[r, e] = sum[s](softmax[s](z[r, s]) * V[s, e])
"""


@pytest.fixture(scope="module")
def of_one_token() -> tuple[Program, list[UGraph]]:
    """The program, and all its split families, stabilised."""
    program = parse(ONE_TOKEN)
    stable = [stabilized(f.ugraph) for f in search(program).families]
    whole = [s.ugraph for s in stable if not s.faults and len(s.ugraph.kernels) == 2]
    return program, [u for u in whole if any(d.endswith("_part") for d in u.program.sizes)]


def test_parts_that_are_seen_whole_are_averages_too(of_one_token):
    """Their maxima are no running ones, and their sums are rescaled nowhere."""
    program, graphs = of_one_token
    found = [(u, n) for u in graphs if (n := with_normalised_partials(u)) is not None]
    kinds = {n.op for u, _ in found for n in u.kernels[0].nodes if n.op in ("shift", "accum_max")}
    assert kinds == {"shift", "accum_max"}
    for _, graph in found:
        assert [t.dtype for t in graph.intermediates].count(F16) == 1
        assert FamilyTests(program, trials=2, seed=0).run(graph).equal
        assert prove(program, graph) is not None


def test_whole_parts_whose_weights_are_something_else_are_left_alone(of_one_token):
    """The total and the sums of values have to scale with the maximum that is stored."""
    _, graphs = of_one_token
    found = [u for u in graphs if with_normalised_partials(u) is not None]
    graph = next(u for u in found if any(n.op == "shift" for n in u.kernels[0].nodes))
    first = graph.kernels[0]
    for number, node in enumerate(first.nodes):
        if node.op not in ("sub", "exp"):
            continue
        # The logits themselves instead.
        nodes = list(first.nodes)
        nodes[number] = replace(node, op="square", args=node.args[:1])
        other = replace(first, nodes=tuple(nodes))
        assert with_normalised_partials(replace(graph, kernels=(other, *graph.kernels[1:]))) is None


@pytest.mark.parametrize("part", ["A", "L"])
def test_a_part_that_is_left_as_it_was_is_found_out(part):
    """Scaling one of the sums only is wrong."""
    program = normalise(several_kernels.program("split_attention"))
    found = normalised("split_attention")
    first = found.kernels[0]
    assert isinstance(first, BlockGraph)
    nodes = tuple(
        replace(n, args=(first.nodes[n.args[0]].args[0],))
        if n.op == "store" and n.access.tensor == part
        else n
        for n in first.nodes
    )
    wrong = replace(found, kernels=(replace(first, nodes=nodes), *found.kernels[1:]))
    assert not FamilyTests(program, trials=2, seed=0).run(wrong).equal


@pytest.mark.covering(1)
@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("name", ATTENTION)
def test_the_kernels_compute_attention(name, scale):
    """Logits in the thousands, too; under the causal mask the last part of some rows is empty."""
    arrays = draw(scale)
    plan = Plan(normalised(name), several_kernels.plan(name).options)
    got = run_interpreted(plan, arrays)["O"]
    np.testing.assert_allclose(got, attention(arrays, causal="causal" in name), atol=4e-3)


def test_the_scale_costs_one_exponential_a_row_and_the_maximum_stays_in_base_two():
    plan = several_kernels.plan("split_attention")
    first, _ = emit_triton(Plan(normalised("split_attention"), plan.options))
    assert "tl.exp(" not in first.source
    assert first.source.count("tl.exp2(") == 3
    assert "tl.exp2(peak6 - shift" in first.source


@pytest.mark.parametrize("name", ["split_matmul_added", "residual_gated", "library_epilogue"])
def test_what_stores_no_parts_of_a_softmax_is_left_alone(name):
    assert with_normalised_partials(several_kernels.ugraph(name)) is None


def test_outputs_that_are_no_halves_are_left_alone():
    graph = several_kernels.ugraph("split_attention")
    program = graph.program
    outputs = tuple(replace(o, tensor=replace(o.tensor, dtype=F32)) for o in program.outputs)
    wide = replace(graph, program=replace(program, outputs=outputs))
    assert with_normalised_partials(wide) is None


def test_values_of_a_wider_type_are_left_alone():
    """Their averages need not fit a half."""
    graph = several_kernels.ugraph("split_attention")
    program = graph.program
    inputs = tuple(replace(t, dtype=F32) if t.name == "V" else t for t in program.inputs)
    assert with_normalised_partials(replace(graph, program=replace(program, inputs=inputs))) is None


def test_sums_with_other_weights_than_the_total_are_left_alone():
    """A part may have terms in one and none in the other."""
    graph = several_kernels.ugraph("split_causal_attention")
    first = graph.kernels[0]
    assert isinstance(first, BlockGraph)
    (exp,) = (n for n, node in enumerate(first.nodes) if node.op == "exp")
    nodes = tuple(
        replace(n, args=(exp, n.args[1])) if n.op == "matmul" and n.reduced == ("s",) else n
        for n in first.nodes
    )
    other = replace(graph, kernels=(replace(first, nodes=nodes), *graph.kernels[1:]))
    assert with_normalised_partials(other) is None


def test_rounding_of_a_large_shift_cancels():
    """Equal logits of 8e6 in splits with unequal numbers of keys: all values weigh the same."""
    arrays = draw()
    arrays["Q"] = np.zeros_like(arrays["Q"])
    arrays["Q"][..., 0] = 8192.0
    arrays["K"] = np.zeros_like(arrays["K"])
    arrays["K"][..., 0] = 8192.0
    name = "split_causal_attention"
    plan = Plan(normalised(name), several_kernels.plan(name).options)
    got = run_interpreted(plan, arrays)["O"]
    np.testing.assert_allclose(got, attention(arrays, causal=True), atol=4e-3)
