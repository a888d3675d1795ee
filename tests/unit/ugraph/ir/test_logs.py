"""The logarithm of a softmax is a difference, which has a value where the softmax underflows."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.targets import target
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.logs import logs_apart

DECLARED = "B = 4, V = 24\nX[B, V], Z[B, V] : f32\n"
SOFTMAX = {
    "composite": "softmax[v](X[b, v])",
    "by hand": "exp(X[b, v]) / sum[v](exp(X[b, v]))",
    "with a maximum": "exp(X[b, v] - max[v](X[b, v])) / sum[v](exp(X[b, v] - max[v](X[b, v])))",
    "with a reciprocal": "exp(X[b, v]) * (1 / sum[v](exp(X[b, v])))",
}
LOGS = {"log": 1.0, "log2": np.log2(np.e), "log10": np.log10(np.e)}
PRODUCTS = [
    "exp(X[b, v]) * exp(Z[b, v])", "exp(X[b, v]) / exp(Z[b, v])", "1 / exp(X[b, v])",
    "exp(X[b, v]) * Z[b, v]^2", "Z[b, v]^2 / (exp(X[b, v]) * 3)", "exp(X[b, v])",
    "exp(X[b, v]) / Z[b, v]",
]  # fmt: skip


def program_of(text: str) -> Program:
    return parse(f"{DECLARED}Y[b, v] = {text} + 0 * Z[b, v]")


def inputs(scale: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {n: np.float32(scale * rng.normal(size=(4, 24))).astype(float) for n in "XZ"}


def has_log_of_exponential(program: Program) -> bool:
    """Whether some logarithm is of a product with an exponential."""
    return logs_apart(program) is not program


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_has_the_same_logarithm(log: str, product: str) -> None:
    program = program_of(f"{log}({product})")
    assert has_log_of_exponential(program)
    apart = logs_apart(program)
    assert not has_log_of_exponential(apart)
    with np.errstate(all="ignore"):
        want, got = (
            evaluate_program(p, inputs(1.0), FloatMeaning())["Y"] for p in (program, apart)
        )
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("product", ["X[b, v]^2 * 3", "sum[v](exp(X[b, v]))", "exp(X[b, v]) + 1"])
def test_other_logarithms_stay(product: str) -> None:
    program = program_of(f"log({product})")
    assert logs_apart(program) is program


def test_all_spellings_have_one_normal_form() -> None:
    forms = {normalise(program_of(f"log({text})")).digest for text in list(SOFTMAX.values())[:3]}
    assert len(forms) == 1


@pytest.mark.parametrize(
    ("log", "spelling"),
    [*(("log", spelling) for spelling in SOFTMAX), ("log2", "by hand"), ("log10", "composite")],
)
def test_kernels_have_a_value_where_a_softmax_underflows(log: str, spelling: str) -> None:
    program = program_of(f"{log}({SOFTMAX[spelling]})")
    arrays = inputs(200.0)
    x = arrays["X"]
    top = x.max(1, keepdims=True)
    want = (x - top - np.log(np.exp(x - top).sum(1, keepdims=True))) * LOGS[log]
    assert want.min() < -500
    instances = rank_plans(program, target("h200"), Request("h200", "triton")).instances
    assert instances
    for plan in {i.kind: i.plan for i in instances}.values():
        got = run_interpreted(plan, arrays)["Y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
