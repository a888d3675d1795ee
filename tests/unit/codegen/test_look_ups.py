"""Loads at positions that are data, in both languages: ends, repeats, negative, out of range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F16, F32, I8, I16, I32, I64, U8, DType
from mirage_py.ugraph.ir.plan import Plan

needs_compiler = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
ROWS, WIDE, COUNT = 40, 24, 19
IDS = np.array([0, 39, 39, 1, -1, -40, 40, -41, 100, 7, 7, 7, 2, 3, 4, 5, 6, 38, -39])


def rows(kind: DType, table: DType, tiles: dict[str, int]) -> Plan:
    """Y[n, d] = W[ids[n], d] * 2; S[n] = sum over d; E[n] = W[ids[n] + 2, n]; P = W[ids[B[n]]];
    G[n] = W[ids[n] // 3, ids[n] % 16].
    """
    b = ProgramBuilder("rows")
    b.dim("n", COUNT), b.dim("d", WIDE)
    b.input("W", (ROWS, WIDE), table)
    b.input("ids", (COUNT,), kind)
    b.input("B", (COUNT,), I32)
    n, d = ix.dim("n"), ix.dim("d")
    at = ix.data("ids", (n,))
    row = b.load("W", (at % ROWS, d))
    b.output("Y", b.apply("mul", row, b.const(2.0)), "nd", F32)
    b.output("S", b.sum(row, "d"), "n", F32)
    b.output("E", b.load("W", ((at + 2) % ROWS, n)), "n", F32)
    again = ix.data("ids", (ix.data("B", (n,)) % COUNT,))
    b.output("P", b.load("W", (again % ROWS, d)), "nd", F32)
    b.output("G", b.load("W", (at // 3 % ROWS, at % 16)), "n", F32)
    b.output("I", b.apply("add", b.load("ids", "n"), b.const(1.0)), "n", F32)
    return one_kernel(b.build(), tiles)


def check(plan: Plan, kind: DType, *, emulated: bool) -> None:
    table = plan.ugraph.program.tensors["W"].dtype
    draw = np.random.default_rng(3)
    values = draw.normal(size=(ROWS, WIDE)).astype(np.float16 if table is F16 else np.float32)
    ids = IDS % 256 if kind is U8 else IDS
    others = draw.integers(-COUNT, 2 * COUNT, size=COUNT)
    inputs = {"W": values.astype(np.float64), "ids": ids.astype(float), "B": others.astype(float)}
    found = run_emulated(plan, inputs) if emulated else run_interpreted(plan, inputs)
    w = inputs["W"]
    np.testing.assert_array_equal(found["Y"], w[ids % ROWS] * 2)
    np.testing.assert_allclose(found["S"], w[ids % ROWS].sum(-1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found["E"], w[(ids + 2) % ROWS, np.arange(COUNT)])
    np.testing.assert_array_equal(found["P"], w[ids[others % COUNT] % ROWS])
    np.testing.assert_array_equal(found["G"], w[ids // 3 % ROWS, ids % 16])
    np.testing.assert_array_equal(found["I"], ids + 1.0)


TILES = [{"n": 4}, {"n": 1}, {}]


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("kind", [I64, I8], ids=str)
def test_in_triton(kind: DType, tiles: dict[str, int]):
    check(rows(kind, F32, tiles), kind, emulated=False)


def test_halves_in_triton():
    check(rows(I64, F16, {"n": 8}), I64, emulated=False)


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "tiles"),
    [(I64, {"n": 1}), (I64, {}), *((k, {"n": 4}) for k in (I64, I32, I16, I8, U8))],
)
def test_in_cuda(kind: DType, tiles: dict[str, int]):
    check(replace(rows(kind, F32, tiles), backend="cuda"), kind, emulated=True)


@needs_compiler
def test_halves_in_cuda():
    check(replace(rows(I64, F16, {"n": 8}), backend="cuda"), I64, emulated=True)
