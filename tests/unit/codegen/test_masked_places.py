"""What a mask leaves out may be anything, also NaN or infinite: padding, rows of a cache that
nobody has written. Kernels give numbers wherever eager PyTorch does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch
from nightly import NIGHTLY

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.targets import target
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test

Arrays = Mapping[str, np.ndarray]
NAN, INF = float("nan"), float("inf")
# Of 32 rows of a cache, or columns of weights, these are in use.
USED = 11
# The inputs that are read, and what is computed.
CASES = {
    "never": ("P", "Y[n, m] = where(m < 0, P[n, m], 0) * P[n, 0]"),
    "values": ("PV", f"Y[n, d] = sum[m](P[n, m] * where(m < {USED}, V[m, d], 0))"),
    "cached values": ("PVL", "Y[n, d] = sum[m](P[n, m] * where(m < L[0], V[m, d], 0))"),
    "weights": ("PV", f"Y[n, d] = sum[m](where(m < {USED}, P[n, m], 0) * V[m, d])"),
    "products": ("PV", f"Y[n, d] = sum[m](where(m < {USED}, P[n, m] * V[m, d], 0))"),
    "a sum of rows": ("PVL", "Y[n, d] = sum[m](where(m < L[0] - n, V[m, d], 0)) * P[n, 0]"),
    "sums up to a row": ("PV", "Y[n, d] = sum[m](where(m < n, V[m, d], 0)) * P[n, 0]"),
    "products up to a row": ("PV", "Y[n, d] = sum[m](where(m < n, P[n, m] * V[m, d], 0))"),
    "attention": (
        "QKVL",
        """let Z[n, m] = sum[d](Q[n, d] * K[m, d])
        let S[n, m] = softmax[m](where(m < L[0], Z[n, m], -inf))
        Y[n, d] = sum[m](S[n, m] * where(m < L[0], V[m, d], 0))""",
    ),
}
INPUTS = {
    "P": "P[N, M] : f16", "V": "V[M, D] : f16", "Q": "Q[N, D] : f16", "K": "K[M, D] : f16",
    "L": "L[1] : f32",
}  # fmt: skip


def program_of(name: str) -> Program:
    read, formula = CASES[name]
    return parse("\n".join(["N = 16, M = 32, D = 16", *(INPUTS[t] for t in read), formula]))


def inputs_of(program: Program) -> Iterator[Arrays]:
    """Something that is no number where nothing is in use: in one input, in another, in all. An
    infinity is in all alone, by day.
    """
    rng = np.random.default_rng(5)
    plain = {t.name: rng.integers(-3, 4, size=t.shape) / 4.0 for t in program.inputs}
    if "L" in plain:
        plain["L"] = np.full(1, float(USED))
    cached = {name: x.shape.index(32) for name, x in plain.items() if 32 in x.shape}
    for value in (NAN, -INF):
        alone = [[name] for name in cached] if value != -INF or NIGHTLY else []
        for names in (*alone, list(cached)):
            arrays = {name: x.copy() for name, x in plain.items()}
            for name in names:
                np.moveaxis(arrays[name], cached[name], 0)[USED:] = value
            yield arrays


def eager(program: Program, arrays: Arrays) -> np.ndarray:
    types = {t.name: getattr(torch, t.dtype.torch_name) for t in program.inputs}
    inputs = [torch.from_numpy(arrays[t.name]).to(types[t.name]) for t in program.inputs]
    return torch_function(program)(*inputs).double().numpy()


def assert_numbers(got: np.ndarray, want: np.ndarray) -> None:
    """Where eager has one, the same."""
    known = np.isfinite(want)
    np.testing.assert_allclose(got[known], want[known], rtol=0.01, atol=0.01)


@pytest.mark.parametrize("name", CASES)
def test_some_results_are_numbers(name: str) -> None:
    """Else the other tests would compare nothing."""
    program = program_of(name)
    assert any(np.isfinite(eager(program, a)).any() for a in inputs_of(program))


@pytest.mark.parametrize("name", CASES)
def test_masks_as_factors_are_selections_still(name: str) -> None:
    program = program_of(name)
    lowered = lower_masks(program)
    for arrays in inputs_of(program):
        with np.errstate(all="ignore"):
            found = evaluate_program(lowered, arrays, FloatMeaning())
        if name != "attention":  # its mask is a factor of exponentials, which kernels select
            assert_numbers(found["Y"], eager(program, arrays))


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "triton") for name in CASES),
        *((name, "cuda") for name in ("cached values", "products up to a row", "attention")),
    ],
)
def test_kernels_give_numbers_where_eager_does(name: str, backend: str) -> None:
    program = program_of(name)
    plans: dict[tuple[object, ...], Plan] = {}
    for instance in rank_plans(program, target("h200"), Request("h200", backend)).instances:
        form = tuple(str(getattr(k, "nodes", k)) for k in instance.plan.ugraph.kernels)
        plans.setdefault(form, instance.plan)
    assert plans
    run = run_interpreted if backend == "triton" else run_emulated
    for plan in list(plans.values())[:2]:
        for arrays in inputs_of(program):
            assert_numbers(run(plan, arrays)["Y"], eager(program, arrays))


MOVED = """
ugraph moved
dim n = 4
dim m = 7
dim d = 5
input P[4, 7] : f32
input V[7, 5] : f32
output Y[4, 5] : f32
program {
  %0 = load V[m, d]
  %1 = mask (m < 3)
  %2 = const 0.0
  %3 = where %1, %0, %2
  %4 = load P[n, m]
  %5 = matmul[m] %4, %3
  return Y[n, d] = %5
}
kernel moved {
  grid n by 2
  %0 = load V[m, d]
  %1 = mask (m < 3)
  %2 = load P[n, m]
  KERNEL
  store Y[n, d] = %4
}
"""


@pytest.mark.parametrize(
    ("kernel", "is_right"),
    [
        ("%3 = mul %0, %1\n  %4 = matmul[m] %2, %3", True),
        ("%3 = mul %2, %1\n  %4 = matmul[m] %3, %0", False),
    ],
)
def test_a_mask_stays_with_what_it_selects(kernel: str, is_right: bool) -> None:
    """Of numbers both are the same, but the second one multiplies 0 by what is masked."""
    ugraph = parse_ugraph(MOVED.replace("KERNEL", kernel))
    found = field_test(lower_masks(ugraph.program), ugraph, seed=3)
    assert found.equal == is_right
    assert is_right or "has no value" in str(found.mismatch)
