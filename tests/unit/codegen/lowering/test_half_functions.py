"""Short formulas where a half is kept: right to its last place, and only there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from several_kernels import over

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.codegen.lowering.half_functions import with_half_functions
from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.evaluate.element_types import round_to

RUNS = {"triton": run_interpreted, "cuda": run_emulated}
EXACT: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "expm1": np.expm1,
    "softplus": lambda x: np.logaddexp(0.0, x),
}
# Bits of the type's last place beside its largest.
DIGITS = {"f16": 10, "bf16": 7}
SIZE = 1 << 16


def kernel_of(op: str, dtype: str, out: str = "") -> UGraph:
    program = parse(f"X[{SIZE}] : {dtype}\nY[n] : {out or dtype} = {op}(X[n])\n")
    text = f"kernel f {{\n  grid n by 1024\n  %0 = load X[n]\n  %1 = {op} %0\n  store Y[n] = %1\n}}"
    return over(program, text)


def all_halves(dtype: str) -> NDArray[np.float64]:
    """Every number of a type, infinities and NaN among them."""
    bits = np.arange(SIZE, dtype=np.uint32)
    if dtype == "bf16":
        with np.errstate(invalid="ignore"):  # NaN
            return (bits << 16).view(np.float32).astype(np.float64)
    return bits.astype(np.uint16).view(np.float16).astype(np.float64)


@pytest.mark.parametrize("backend", sorted(RUNS))
@pytest.mark.parametrize("dtype", sorted(DIGITS))
@pytest.mark.parametrize("op", sorted(EXACT))
def test_every_half_has_the_nearest_result_or_its_neighbour(
    op: str, dtype: str, backend: str
) -> None:
    ugraph = kernel_of(op, dtype)
    given = all_halves(dtype)
    with np.errstate(all="ignore"):
        found = RUNS[backend](Plan(ugraph, (LaunchConfig(4),), backend), {"X": given})["Y"]
        want = EXACT[op](given)
        nearest = round_to(want, ugraph.program.outputs[0].tensor.dtype)
    assert np.array_equal(np.isnan(found), np.isnan(nearest))
    assert np.array_equal(np.isinf(found), np.isinf(nearest))
    finite = np.isfinite(nearest)
    found, want, nearest = (a[finite].astype(np.float64) for a in (found, want, nearest))
    normal = np.abs(want) > 1e-4 if dtype == "f16" else np.abs(want) > 1e-37
    place = 2.0 ** (np.floor(np.log2(np.abs(want[normal]))) - DIGITS[dtype])
    # Triton's interpreter cuts off what a GPU rounds to bfloat16.
    cuts = (dtype, backend) == ("bf16", "triton")
    assert (np.abs(found - want)[normal] <= (1.002 if cuts else 0.502) * place).all()
    assert cuts or (found != nearest).mean() < 1e-3
    assert (np.abs(found - want)[~normal] <= (1e-7 if dtype == "f16" else 1e-37)).all()
    zeros = want == 0
    assert np.array_equal(np.signbit(found[zeros & (found == 0)]), np.signbit(want[zeros]))


def operators(ugraph: UGraph) -> set[str]:
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    (typed,) = lowered(ugraph, [block]).blocks
    return {n.op for n in typed.block.nodes}


def test_float32_is_computed_to_its_last_place() -> None:
    assert "expm1" not in operators(kernel_of("expm1", "f16"))
    assert "expm1" in operators(kernel_of("expm1", "f32"))
    assert "expm1" in operators(kernel_of("expm1", "f16", "f32"))
    assert "log1p" in operators(kernel_of("softplus", "f32"))


HEAD = "X[4096], Z[4096] : bf16\n"
ABOUT = {
    "where(X[n] > 0, X[n], 1.5 * expm1(min(X[n], 0)))": True,
    "-expm1(X[n]) * Z[n]": True,
    "relu(cast(expm1(X[n]), bf16)) - X[n]": True,
    # What is left of a difference is what rounding left.
    "expm1(X[n]) - X[n]": False,
    "expm1(X[n]) / Z[n]": False,
    "where(expm1(X[n]) > 0.1, Z[n], X[n])": False,
    "expm1(expm1(X[n]))": None,
}


@pytest.mark.parametrize("expression", ABOUT)
def test_only_what_keeps_a_relative_error_may_come_between(expression: str) -> None:
    head = HEAD if "Z[" in expression else HEAD.replace(", Z[4096]", "")
    program = parse(f"{head}Y[n] : bf16 = {expression}\n")
    (block,) = one_kernel(program, {"n": 128}).ugraph.kernels
    assert isinstance(block, BlockGraph)
    made = with_half_functions(block, dict(program.tensors))
    left = sum(n.op == "expm1" for n in made.nodes)
    short = ABOUT[expression]
    # Of two in a row the inner one is computed in full.
    assert left == (1 if short is None else int(not short))
    assert (made == block) == (short is False)
