"""Matmuls of float32 on the GPU against float64, under each of torch's settings.

`pytest -m gpu -s tests/gpu/test_fp32_precision.py` takes about a minute and says the errors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from fp32_plans import matmul_plan, matmul_program

from mirage_py.errors import MirageError
from mirage_py.pipeline.pipeline import optimize
from mirage_py.runtime.compile.cuda_compiler import cuda_compiler
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.ir.launch_choices import Precision

pytestmark = pytest.mark.gpu

SIZES = (256, 2048, 512)
# Of the setting: the ways that are exact enough.
WAYS = {
    "highest": (None, Precision.TF32X3),
    "high": (None, Precision.TF32X3, Precision.TF32),
    "medium": (Precision.TF32,),
}


@pytest.fixture(autouse=True)
def _setting() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


def error_of(found: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> float:
    want = x.double() @ w.double()
    return float((found.double() - want).norm() / want.norm())


def backends() -> tuple[str, ...]:
    try:
        cuda_compiler()
    except MirageError:
        return ("triton",)
    return ("triton", "cuda")


def inputs(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(SIZES[:2], device="cuda"), torch.randn(SIZES[1:], device="cuda")
    if kind == "outliers":
        x[:, ::64] *= 1e4
    if kind == "positive":
        x, w = x.abs(), w.abs()
    return x, w


@pytest.mark.parametrize("kind", ["random", "outliers", "positive"])
@pytest.mark.parametrize("setting", WAYS)
def test_as_exact_as_eager(setting: str, kind: str) -> None:
    """A kernel's error is at most twice that of eager PyTorch under the setting; that of three
    matmuls of TF32 at most four times, as tensor cores cut sums off.
    """
    torch.set_float32_matmul_precision(setting)
    x, w = inputs(kind)
    eager = error_of(x @ w, x, w)
    program = matmul_program(*SIZES, "ieee" if setting == "highest" else "tf32")
    for backend in backends():
        for way in WAYS[setting]:
            (found,) = PlanRunner(matmul_plan(program, way, backend)).run_poisoned(x, w)
            error = error_of(found, x, w)
            sys.stdout.write(f"{setting} {kind} {backend} {way}: {error:.2e}, eager {eager:.2e}\n")
            times = 4 if way is Precision.TF32X3 else 2
            assert error <= max(times * eager, 2.0**-22)


def test_one_of_tf32_is_not_exact() -> None:
    x, w = inputs("random")
    program = matmul_program(*SIZES)
    (found,) = PlanRunner(matmul_plan(program, Precision.TF32)).run_poisoned(x, w)
    assert error_of(found, x, w) > 100 * error_of(x @ w, x, w)


@pytest.mark.parametrize(("precision", "most"), [("ieee", 1e-6), ("tf32", 1e-3)])
def test_the_winner(precision: str, most: float) -> None:
    """Measured beside eager under the same setting, which is torch's again afterwards."""
    program = matmul_program(64, 1024, 1024)
    result = optimize(program, fp32_precision=precision, budget=20.0)
    assert result.document()["program"]["fp32_precision"] == precision
    assert not torch.backends.cuda.matmul.allow_tf32
    passed = [c for c in result.candidates if c.passed and c.plan is not None]
    ways = {str(o.precision) for c in passed for o in c.plan.options}
    sys.stdout.write(f"{precision} {result.best} {result.baseline} {sorted(ways)}\n")
    if precision == "ieee":
        assert "tf32" not in ways
    if result.plan is not None:
        torch.manual_seed(0)
        x, w = torch.randn(64, 1024, device="cuda"), torch.randn(1024, 1024, device="cuda")
        (found,) = PlanRunner(result.plan).run_poisoned(x, w)
        assert error_of(found, x, w) < most
