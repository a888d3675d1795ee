"""µGraphs of several kernels, and of one with the stores that they need, through every stage below
the search.
"""

from __future__ import annotations

import numpy as np
import pytest
import several_kernels

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.runtime.base.emission import emit_kernels, emit_steps
from mirage_py.runtime.compile.compile import compile_kernel
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted, run_interpreted
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.split_dim import with_splits
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.text_form import format_ugraph, parse_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.samples.sampled_test import sampled_test

NAMES = several_kernels.NAMES
SPLIT = [name for name in NAMES if name.startswith("split_")]


def inputs_of(graph: UGraph) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {t.name: draw.normal(size=t.shape) / 4 for t in graph.program.inputs}


def agrees_in_floats(name: str, graph: UGraph) -> bool:
    inputs = inputs_of(graph)
    want = evaluate_program(several_kernels.program(name), inputs, FloatMeaning())
    got = evaluate_ugraph(graph, inputs, FloatMeaning())
    return all(np.allclose(got[n], want[n], rtol=1e-9, atol=1e-12) for n in want)


@pytest.mark.parametrize("name", NAMES)
def test_valid_and_read_back(name):
    graph, plan = several_kernels.ugraph(name), several_kernels.plan(name)
    validate_ugraph(graph)
    assert parse_ugraph(format_ugraph(graph)) == graph
    assert load_text(dump_text(graph), name) == graph
    assert load_text(dump_text(plan), name) == plan


@pytest.mark.parametrize("name", NAMES)
def test_equal_in_float64(name):
    assert agrees_in_floats(name, several_kernels.ugraph(name))


@pytest.mark.parametrize("name", NAMES)
def test_equal_in_the_field(name):
    program, graph = several_kernels.program(name), several_kernels.ugraph(name)
    found = field_test(program, graph, trials=2, seed=1)
    assert found.equal, found.mismatch
    assert found.error_bound is not None


@pytest.mark.parametrize("name", NAMES)
def test_equal_at_the_real_sizes(name):
    found = sampled_test(several_kernels.program(name), several_kernels.ugraph(name), seed=1)
    assert found.equal, found.mismatch
    assert (found.samples, found.skipped) == (3, "")


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_float64_in_the_interpreter(name):
    found = check_interpreted(several_kernels.program(name), several_kernels.plan(name), seed=1)
    assert found.passed, found.reason


@pytest.mark.parametrize("name", NAMES)
def test_compiles_ahead_of_time(name):
    kernels = emit_kernels(several_kernels.plan(name))
    assert kernels
    for kernel in kernels:
        assert compile_kernel(kernel, 90).cubin_bytes > 0


@pytest.mark.parametrize(
    "name",
    ["split_rms_norm_matmul", "split_attention", "split_matmul_added", "residual_gated"],
)
def test_the_emitted_kernels(name, golden):
    sources = [kernel.source for kernel in emit_triton(several_kernels.plan(name))]
    golden.check("\n\n".join(sources), f"triton/several_kernels/{name}.py.txt")


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("parts", [3, 5])
def test_another_number_of_parts(name, parts):
    """Not a power of two: the combining kernel sees padding."""
    dim = "s" if "attention" in name else "d"
    graph = with_splits(several_kernels.ugraph(name), dim, parts)
    validate_ugraph(graph)
    assert agrees_in_floats(name, graph)
    plan = Plan(graph, several_kernels.plan(name).options)
    inputs = inputs_of(graph)
    want = evaluate_program(several_kernels.program(name), inputs, FloatMeaning())
    got = run_interpreted(plan, inputs)
    for output, values in want.items():
        assert np.linalg.norm(got[output] - values) < 2e-3 * np.linalg.norm(values)


def test_steps_come_in_order():
    def words(name):
        return [s.name for s in emit_steps(several_kernels.plan(name))]

    assert words("split_matmul_added") == ["zero_Y", "split_k"]
    assert words("split_attention") == ["partial", "combine"]
    assert words("library_prologue") == ["norm", "product"]
    assert words("library_epilogue") == ["product", "epilogue"]
