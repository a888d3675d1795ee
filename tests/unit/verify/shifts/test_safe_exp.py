from __future__ import annotations

import numpy as np
import pytest
import samples

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import BOOL, F16
from mirage_py.verify.shifts.safe_exp import add_safe_shifts

HEAD = "T = 12, S = 20\nX[T, S], V[S] : f32\n"


def values(program, scale=1.0, seed=0):
    inputs = {n: a * scale for n, a in samples.float_inputs(program, seed).items()}
    return evaluate_program(program, inputs, FloatMeaning())


@pytest.mark.parametrize(
    "body",
    [
        "let E[t, s] = exp(X[t, s])\nY[t, s] = E[t, s] / sum[s](E[t, s]) * V[s]",
        "Y[t] = sum[s](exp(X[t, s]) * V[s]) / sum[s](exp(X[t, s]))",
        (
            "let E[t, s] = where(s <= t + 8, exp(X[t, s] * 2), 0)\n"
            "Y[t] = sum[s](E[t, s] * V[s]) / sum[s](E[t, s])"
        ),
        "let E[t, s] = exp(X[t, s])\nY[t] = sum[s](E[t, s] * V[s]) / sqrt(sum[s](E[t, s]^2))",
        "Y[t] = log(sum[s](exp(X[t, s]) * V[s]^2))",
        "Y[t, s] = V[s] * (X[t, s] - log(sum[s](exp(X[t, s]))))",
        "Y[t] = log(sum[s](exp(X[t, s]) * V[s]^2) * sqrt(sum[s](exp(X[t, s])^4)))",
        "Y[t] = log(1 / sum[s](where(s <= t, exp(X[t, s] * V[s]), 0)))",
        "let L[t] = log(sum[s](exp(X[t, s] * V[s])))\nY[t] = exp(2 * L[t] / 1e9) * L[t]",
    ],
)
def test_the_same_values_without_overflow(body):
    program = parse(HEAD + body)
    safe = add_safe_shifts(program)
    assert "max" in [n.op for n in safe.nodes]
    assert values(safe)["Y"] == pytest.approx(values(program)["Y"], rel=1e-10)
    assert np.isfinite(values(safe, scale=1e4)["Y"]).all()


@pytest.mark.parametrize(
    "body",
    [
        "Y[t] = sum[s](exp(X[t, s]) * V[s])",
        "Y[t, s] = exp(X[t, s]) * V[s]",
        "Y[t] = sum[s](exp(X[t, s]) * V[s]) / (1 + sum[s](exp(X[t, s])))",
        "Y[t] = log(1 + sum[s](exp(X[t, s]) * V[s]))",
        "Y[t] = erf(sum[s](exp(X[t, s]) * V[s]))",
    ],
)
def test_a_scale_that_matters_stays(body):
    program = parse(HEAD + body)
    assert add_safe_shifts(program) == program


def test_masked_values_may_be_larger_than_all_others():
    b = ProgramBuilder("masked")
    b.dim("t", 3)
    b.dim("s", 4)
    b.input("X", (3, 4), F16)
    b.input("M", (3, 4), BOOL)
    keep = b.load("M", ["t", "s"])
    e = b.apply("mul", b.apply("exp", b.load("X", ["t", "s"])), keep)
    b.output("Y", b.apply("div", e, b.sum(e, ["s"])), ["t", "s"], F16)
    safe = add_safe_shifts(b.build())
    x = np.array([[1e4, 1.0, 2.0, -1e4]] * 3)
    mask = np.array([[0.0, 1.0, 1.0, 0.0], [1, 1, 1, 1], [0, 0, 0, 1]])
    found = evaluate_program(safe, {"X": x, "M": mask}, FloatMeaning())["Y"]
    assert found[0] == pytest.approx([0, 1 / (1 + np.e), np.e / (1 + np.e), 0])
    assert found[1] == pytest.approx([1, 0, 0, 0])
    assert found[2] == pytest.approx([0, 0, 0, 1])


def test_two_softmaxes_over_one_score():
    body = (
        "let E[t, s] = exp(X[t, s])\n"
        "Y[t, s] = E[t, s] / sum[s](E[t, s])\nZ[t, s] = E[t, s] / sum[t](E[t, s]) * V[s]"
    )
    program = parse(HEAD + body)
    # No shift is constant along both dimensions but one for the whole tensor.
    safe = add_safe_shifts(program)
    for name, expected in values(program).items():
        assert values(safe)[name] == pytest.approx(expected, rel=1e-10)
    assert np.isfinite(values(safe, scale=300)["Y"]).all()
