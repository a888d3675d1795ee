"""One tiny program through every stage, in the order of the pipeline. Run this first: seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

SPEC = """B = 4, D = 16, N = 8
X[B, D], W[D, N] : f16
Y[b, n] = sum[d](X[b, d] * W[d, n]) / sqrt(mean[d](X[b, d]^2) + 1e-6)
"""


@pytest.fixture(scope="module")
def program():
    from mirage_py.frontend.spec import parse

    return parse(SPEC, name="tiny")


@pytest.fixture(scope="module")
def found(program):
    from mirage_py.search.enumerate.search import search

    return search(program, seed=0)


@pytest.fixture(scope="module")
def plan(found):
    from families import instances, stabilize

    from mirage_py.targets import H200

    best = found.families[0]
    return instances(stabilize(best.ugraph), H200, 1)[0].plan


def test_frontend(program):
    from mirage_py.ugraph.checks.validate import validate_program

    validate_program(program)
    assert [t.name for t in program.inputs] == ["X", "W"]


def test_axioms(program):
    from mirage_py.axioms.saturation.saturate import saturate
    from mirage_py.search.space.abstraction import abstract

    found = abstract(program)
    table = saturate(found.roots, found.leaf_axes, axes=found.axes)
    assert table.saturated


def test_search(found):
    assert found.exhausted
    assert found.families


def test_verify(program, found):
    from mirage_py.verify.field_test.field_test import field_test

    assert field_test(program, found.families[0].ugraph, seed=0).equal


def test_instantiate(plan):
    (kernel,) = plan.ugraph.kernels
    assert kernel.is_instance


def test_codegen(plan):
    from mirage_py.codegen.triton.module import emit_triton

    (kernel,) = emit_triton(plan)
    compile(kernel.source, kernel.name, "exec")


def test_runtime(program, plan):
    from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

    draw = np.random.default_rng(0)
    inputs = {
        t.name: draw.normal(size=t.shape).astype(np.float16).astype(np.float64)
        for t in program.inputs
    }
    x, w = inputs["X"], inputs["W"]
    expected = x @ w / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(run_interpreted(plan, inputs)["Y"], expected, rtol=2e-3, atol=2e-3)


def test_pipeline_and_artifact(program, tmp_path: Path):
    from mirage_py.pipeline.pipeline import optimize, save
    from mirage_py.runtime.store.artifact import load_artifact

    result = save(optimize(program, target="h200", effort="none"), tmp_path / "out")
    assert result.plan is not None
    assert load_artifact(tmp_path / "out").plan == result.plan


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from mirage_py.cli.shell.run import run

    spec = tmp_path / "tiny.math"
    spec.write_text(SPEC, encoding="utf-8")
    assert run(["verify", str(spec), str(spec)]) == 0
    assert capsys.readouterr().out.startswith("equal")
