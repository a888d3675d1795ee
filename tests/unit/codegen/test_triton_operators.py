"""Every operator, through Triton's interpreter, against float64: types, odd sizes, tile shapes."""

from __future__ import annotations

import numpy as np
import pytest
from naive import naive_plan

from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32, DType
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import ELEMENTWISE, all_operators, named

TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-6}
POSITIVE = ("pow", *named(lambda o: o.least > -np.inf or o.is_bitwise))
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def rounded(values: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype == BF16:
        bits = np.asarray(values, np.float32).view(np.uint32)
        return ((bits + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    kind = np.float16 if dtype == F16 else np.float32
    return np.asarray(values, kind).astype(np.float64)


def inputs_for(program: Program, *, positive: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    arrays = {}
    for tensor in program.inputs:
        values = rng.standard_normal(tensor.shape)
        arrays[tensor.name] = rounded(np.abs(values) + 0.1 if positive else values, tensor.dtype)
    return arrays


def check(plan: Plan, *, positive: bool = False) -> None:
    program = plan.ugraph.program
    arrays = inputs_for(program, positive=positive)
    want = evaluate_program(program, arrays, FloatMeaning())
    got = run_interpreted(plan, arrays)
    for output in program.outputs:
        reference, value = want[output.tensor.name], got[output.tensor.name]
        error = np.linalg.norm(value - reference) / max(np.linalg.norm(reference), 1e-30)
        assert error < TOLERANCE[output.tensor.dtype.name], (output.tensor.name, error)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize(
    "op", [o.name for o in all_operators() if o.kind == ELEMENTWISE and o.arity == 1]
)
def test_unary(op: str, dtype: DType) -> None:
    b = ProgramBuilder(f"unary_{op}")
    b.dim("m", 7)
    b.dim("n", 33)
    b.input("X", (7, 33), dtype)
    x = b.load("X", ("m", "n"))
    y = b.cast(x, F16) if op == "cast" else b.apply(op, x)
    b.output("Y", y, ("m", "n"), F16 if op == "cast" else dtype)
    check(naive_plan(b.build(), {"m": 4}), positive=op in POSITIVE)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize(
    "op", [o.name for o in all_operators() if o.kind == ELEMENTWISE and o.arity == 2]
)
def test_binary_broadcasts_by_name(op: str, dtype: DType) -> None:
    b = ProgramBuilder(f"binary_{op}")
    b.dim("m", 7)
    b.dim("n", 33)
    b.input("X", (7, 33), dtype)
    b.input("V", (33,), dtype)
    y = b.apply(op, b.load("X", ("m", "n")), b.load("V", ("n",)))
    if op in COMPARISONS:
        y = b.apply("where", y, b.load("X", ("m", "n")), b.const(2.0))
    b.output("Y", y, ("m", "n"), dtype)
    check(naive_plan(b.build(), {"n": 16}), positive=op in POSITIVE)


@pytest.mark.parametrize("op", ["sum", "max", "mean"])
@pytest.mark.parametrize("over", ["m", "n", "mn"])
def test_reductions_ignore_padding(op: str, over: str) -> None:
    b = ProgramBuilder(f"reduce_{op}_{over}")
    b.dim("h", 3)
    b.dim("m", 5)
    b.dim("n", 19)
    b.input("X", (3, 5, 19), F32)
    # exp(0) = 1 in the padding: a mask that is missing shows; and all values are negative for max
    x = b.apply("neg", b.apply("exp", b.load("X", ("h", "m", "n"))))
    y = getattr(b, op)(x, list(over))
    b.output("Y", y, tuple(d for d in "hmn" if d not in over), F32)
    check(naive_plan(b.build(), {"h": 1}))


@pytest.mark.parametrize(
    "tiles",
    [{}, {"m": 16, "n": 16}, {"m": 1, "n": 16}, {"n": 32}, {"m": 16}],
    ids=str,
)
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_matmul_shapes(tiles: dict[str, int], dtype: DType) -> None:
    b = ProgramBuilder("matmul")
    b.dim("m", 7)
    b.dim("k", 21)
    b.dim("n", 37)
    b.input("A", (7, 21), dtype)
    b.input("B", (37, 21), dtype)
    product = b.matmul(b.load("A", ("m", "k")), b.apply("exp", b.load("B", ("n", "k"))), ("k",))
    b.output("C", product, ("m", "n"), dtype)
    check(naive_plan(b.build(), tiles))


@pytest.mark.parametrize("is_reversed", [False, True])
def test_axes_may_be_swapped(is_reversed: bool) -> None:
    b = ProgramBuilder("swapped")
    b.dim("m", 20)
    b.dim("k", 32)
    b.dim("n", 40)
    b.input("A", (20, 32), F16)
    b.input("B", (32, 40), F16)
    b.output("C", b.matmul(b.load("A", "mk"), b.load("B", "kn"), ("k",)), "mn", F16)
    options = LaunchConfig(reversed_axes=is_reversed)
    check(naive_plan(b.build(), {"m": 16, "n": 16}, options))


def test_matmul_with_two_dimensions_on_a_side_and_two_contracted() -> None:
    b = ProgramBuilder("wide")
    for d, size in {"h": 2, "g": 3, "q": 6, "k": 4, "r": 5, "n": 9}.items():
        b.dim(d, size)
    b.input("A", (2, 3, 6, 4, 5), F16)
    b.input("B", (2, 4, 5, 9), F16)
    product = b.matmul(b.load("A", "hgqkr"), b.load("B", "hkrn"), ("k", "r"))
    b.output("C", product, "hgqn", F16)
    check(naive_plan(b.build(), {"h": 1}))


def test_matrix_vector_product() -> None:
    b = ProgramBuilder("matvec")
    b.dim("k", 21)
    b.dim("n", 37)
    b.input("A", (21,), F16)
    b.input("B", (21, 37), F16)
    b.output("C", b.matmul(b.load("A", "k"), b.load("B", "kn"), ("k",)), "n", F16)
    check(naive_plan(b.build(), {"n": 16}))


def test_masks_indices_and_views_are_address_arithmetic() -> None:
    b = ProgramBuilder("views")
    for d, size in {"h": 6, "q": 5, "s": 9}.items():
        b.dim(d, size)
    b.input("X", (3, 45), F16, strides=(1, 3))
    x = b.load("X", (ix.dim("h") // 2, ix.dim("q") * 9 + ix.dim("s")))
    causal = b.mask(ix.compare("le", ix.dim("s"), ix.dim("q") + 4))
    slope = b.apply("mul", b.index(ix.dim("s") - ix.dim("q")), b.const(0.125))
    y = b.apply("mul", causal, b.apply("add", x, slope))
    b.output("Y", y, (ix.dim("q"), ix.dim("h") * 9 + ix.dim("s")), F16)
    check(naive_plan(b.build(), {"h": 4, "q": 1}))


def test_a_value_is_repeated_along_a_missing_dimension() -> None:
    b = ProgramBuilder("repeat")
    b.dim("m", 5)
    b.dim("n", 6)
    b.input("X", (5,), F16)
    b.output("Y", b.load("X", "m"), ("m", "n"), F16)
    b.output("Z", b.const(3.0), ("n",), F32)
    check(naive_plan(b.build(), {"m": 2}))
