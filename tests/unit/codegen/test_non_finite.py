"""NaN, infinities and zeros: what kernels make of them, and what eager PyTorch does.

docs/explanation/numerical_check.md says where the two may differ; here is that they do
nowhere else.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.targets import target
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import BF16, BOOL, F16, F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import ELEMENTWISE, all_operators
from mirage_py.ugraph.text.text_form import parse_ugraph

NAN, INF = float("nan"), float("inf")
SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, -3.0, 1e30, -1e30])
UNARY = [o.name for o in all_operators() if o.kind == ELEMENTWISE and o.arity == 1]
BINARY = [
    o.name for o in all_operators() if o.kind == ELEMENTWISE and o.arity == 2 and not o.is_bitwise
]


def eager(program: Program, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    inputs = [
        torch.from_numpy(np.array(arrays[t.name])).to(getattr(torch, t.dtype.torch_name))
        for t in program.inputs
    ]
    found = torch_function(program)(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    return {
        o.tensor.name: y.double().numpy() for o, y in zip(program.outputs, outputs, strict=True)
    }


def pairs() -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(SPECIAL, SPECIAL, indexing="ij")
    return x, y


def assert_same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """The same kind of number everywhere, and close where it is one."""
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-30, equal_nan=True, err_msg=what)


def unsigned(x: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Powers of -0 without their sign: documented."""
    return np.where(x == 0.0, np.abs(power), power)


@pytest.mark.parametrize("op", [op for op in UNARY if op not in ("cast", "shift")])
def test_functions_of_one_operand_are_those_of_eager(op):
    b = ProgramBuilder("unary")
    b.dim("n", len(SPECIAL))
    b.input("X", (len(SPECIAL),), F32)
    b.output("Y", b.apply(op, b.load("X", "n")), "n", F32)
    program = b.build()
    got = run_interpreted(one_kernel(program, {}), {"X": SPECIAL})
    want = eager(program, {"X": SPECIAL})["Y"]
    if op == "gelu":
        # Vectorised on a CPU eager gives NaN here, on a GPU infinity, as the definition does.
        want[SPECIAL == INF] = INF
    assert_same(got["Y"], want, op)


@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_operands_are_those_of_eager(op):
    x, y = pairs()
    b = ProgramBuilder("binary")
    b.dim("m", len(SPECIAL))
    b.dim("n", len(SPECIAL))
    b.input("X", x.shape, F32)
    b.input("V", x.shape, F32)
    result = b.apply(op, b.load("X", "mn"), b.load("V", "mn"))
    b.output("Y", result, "mn", BOOL if op in ("lt", "le", "gt", "ge", "eq", "ne") else F32)
    program = b.build()
    arrays = {"X": x, "V": y}
    got = run_interpreted(one_kernel(program, {"m": 4}), arrays)["Y"]
    want = eager(program, arrays)["Y"]
    if op == "pow":
        # Powers of 1 with infinite exponents, fractional ones of -infinity: documented.
        plain = np.isfinite(y) & (np.abs(y) < 100) & ((x != -INF) | (y == np.rint(y)))
        got, want = unsigned(x, got)[plain], unsigned(x, want)[plain]
    assert_same(got, want, op)


@pytest.mark.parametrize("exponent", [9.0, 10.0, -3.5, 1.7, 12.0, -9.0])
def test_constant_powers_of_negative_numbers(exponent):
    b = ProgramBuilder("power")
    b.dim("n", len(SPECIAL))
    b.input("X", (len(SPECIAL),), F32)
    b.output("Y", b.apply("pow", b.load("X", "n"), b.const(exponent)), "n", F32)
    program = b.build()
    got = run_interpreted(one_kernel(program, {}), {"X": SPECIAL})["Y"]
    want = eager(program, {"X": SPECIAL})["Y"]
    known = (SPECIAL != -INF) | exponent.is_integer()
    assert_same(unsigned(SPECIAL, got)[known], unsigned(SPECIAL, want)[known], str(exponent))


@pytest.mark.parametrize("op", ["sum", "max"])
def test_reductions_let_nothing_through_and_lose_nothing(op):
    """Rows with one special value each, behind tails."""
    rows = np.ones((len(SPECIAL), 19))
    rows[:, 7] = SPECIAL
    b = ProgramBuilder("rows")
    b.dim("m", rows.shape[0])
    b.dim("n", rows.shape[1])
    b.input("X", rows.shape, F32)
    b.output("Y", getattr(b, op)(b.load("X", "mn"), "n"), "m", F32)
    program = b.build()
    got = run_interpreted(one_kernel(program, {"m": 4}), {"X": rows})
    assert_same(got["Y"], eager(program, {"X": rows})["Y"], op)


MAXIMUM = """
ugraph maximum
dim m = 5
dim n = 50
input X[5, 50] : f32
output Y[5] : f32
program {
  %0 = load X[m, n]
  %1 = max[n] %0
  return Y[m] = %1
}
kernel maximum_kernel {
  grid m by 2
  loop n by 16 {
    %0 = load X[m, n]
    %1 = max[n] %0
    %2 = accum_max %1
  }
  store Y[m] = %2
}
"""


def test_a_maximum_over_a_loop_keeps_a_nan():
    x = np.arange(250.0).reshape(5, 50)
    x[1, 3], x[2, 40], x[3] = NAN, INF, -INF
    plan = Plan(parse_ugraph(MAXIMUM), (LaunchConfig(4, (2,)),))
    assert_same(run_interpreted(plan, {"X": x})["Y"], np.array([49.0, NAN, INF, -INF, 249.0]), "")


def test_a_product_with_a_truth_value_is_a_choice():
    """0 * NaN is NaN to eager; here what is not chosen does not count. Documented."""
    b = ProgramBuilder("chosen")
    b.dim("n", 4)
    b.input("X", (4,), F32)
    b.input("C", (4,), BOOL)
    b.output("Y", b.apply("mul", b.load("C", "n"), b.load("X", "n")), "n", F32)
    arrays = {"X": np.array([NAN, INF, NAN, 2.0]), "C": np.array([0.0, 0.0, 1.0, 1.0])}
    got = run_interpreted(one_kernel(b.build(), {}), arrays)["Y"]
    assert_same(got, np.array([0.0, 0.0, NAN, 2.0]), "")


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_a_matrix_product_keeps_rows_and_columns_apart(dtype):
    """On tensor cores and off them, with tails on every side."""
    b = ProgramBuilder("product")
    for dim, size in (("m", 18), ("k", 21), ("n", 37)):
        b.dim(dim, size)
    b.input("A", (18, 21), dtype)
    b.input("W", (21, 37), dtype)
    b.input("V", (21,), dtype)
    a, w = b.load("A", "mk"), b.load("W", "kn")
    b.output("Y", b.matmul(a, b.apply("relu", w), "k"), "mn", F32)
    b.output("Z", b.matmul(b.load("V", "k"), w, "k"), "n", F32)
    program = b.build()
    arrays = {"A": np.ones((18, 21)), "W": np.ones((21, 37)), "V": np.ones(21)}
    arrays["A"][3, 20], arrays["A"][17, 0] = NAN, INF
    arrays["W"][20, 36], arrays["W"][0, 5] = NAN, INF
    got = run_interpreted(one_kernel(program, {"m": 16, "n": 16}), arrays)
    want = eager(program, arrays)
    assert np.isfinite(want["Y"]).sum() == 16 * 35
    for name in ("Y", "Z"):
        assert_finite_alike(got[name], want[name], name)


MASKED = """
T = 24, D = 16
Q[T, D], K[T, D], V[T, D] : f16
M[T, T] : bool
let Z[t, s] = sum[d](Q[t, d] * K[s, d])
O[t, e] = sum[s]( softmax[s](where(M[t, s], Z[t, s], -inf)) * V[s, e] )
"""
CAUSAL = """
T = 24, D = 16
Q[T, D], K[T, D], V[T, D] : f16
let Z[t, s] = sum[d](Q[t, d] * K[s, d])
O[t, e] = sum[s]( softmax[s](where(s <= t, Z[t, s], -inf)) * V[s, e] )
"""


@pytest.fixture(scope="module", params=[CAUSAL, MASKED], ids=["causal", "mask"])
def attention(request) -> tuple[Program, list[Plan]]:
    """The best plan of each kind."""
    program = parse(request.param)
    best: dict[str, Plan] = {}
    for instance in rank_plans(program, target("h200"), Request("h200", "triton")).instances:
        best.setdefault(instance.kind, instance.plan)
    return program, list(best.values())


def poisons() -> dict[str, tuple[str, tuple[int, int], float]]:
    return {
        "nothing": ("Q", (5, 2), 1.0),
        "a row of NaN": ("Q", (5, 2), NAN),
        "an infinite logit": ("Q", (5, 2), INF),
        "a key that some rows see": ("K", (12, 3), NAN),
        "an infinite key": ("K", (12, 3), INF),
        "a key that one row sees": ("K", (23, 3), NAN),
        "an infinite key that one row sees": ("K", (23, 3), -INF),
        "a value that some rows see": ("V", (12, 3), INF),
    }


@pytest.mark.parametrize("name", poisons())
def test_softmax_under_a_mask(attention, name):
    """Finite where eager is, and not where eager is not, in every kind of kernel."""
    program, plans = attention
    rng = np.random.default_rng(1)
    arrays = {t.name: rng.normal(size=t.shape).astype(np.float16).astype(float)
              for t in program.inputs}  # fmt: skip
    tensor, place, value = poisons()[name]
    arrays[tensor][place] = value
    mask = np.tril(np.ones((24, 24)))
    if "M" in arrays:
        mask[9] = 0
        arrays["M"] = mask
    q, k, v = (torch.from_numpy(arrays[n]) for n in "QKV")
    scores = torch.where(torch.from_numpy(mask) > 0, q @ k.T, -INF)
    want = (torch.softmax(scores, 1) @ v).numpy()
    assert np.isnan(want[9]).all() == ("M" in arrays)
    assert len(plans) > 2
    for plan in plans:
        got = run_interpreted(plan, arrays)["O"]
        assert_finite_alike(got, want, [k.name for k in plan.ugraph.kernels])


def test_a_row_that_is_masked_throughout_is_no_number():
    """0 / 0, as in eager: the mask is a factor behind the exponential."""
    program = parse(
        "T = 5, S = 24\nZ[T, S] : f16\nM[T, S] : bool\n"
        "O[t, s] = softmax[s](where(M[t, s], Z[t, s], -inf))"
    )
    rng = np.random.default_rng(2)
    mask = np.ones((5, 24))
    mask[1], mask[2, 3:], mask[3] = 0, 0, 0
    z = rng.normal(size=(5, 24)).astype(np.float16).astype(float)
    z[2, 20], z[3, 4] = INF, NAN
    got = run_interpreted(one_kernel(program, {"t": 2}), {"Z": z, "M": mask})["O"]
    want = torch.softmax(torch.from_numpy(np.where(mask > 0, z, -INF)), 1).numpy()
    assert np.isnan(got[[1, 3]]).all()
    assert_finite_alike(got, want, "rows")


def assert_finite_alike(got: np.ndarray, want: np.ndarray, what: object) -> None:
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want), str(what))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=0.02, atol=0.02)
