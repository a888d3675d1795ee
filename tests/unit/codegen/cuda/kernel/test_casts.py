"""Casts in the CPU stand-in: what is rounded to a narrow type is, wherever it goes then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.errors import ScheduleError
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import BF16, BOOL, F8E4M3, F16, F32, I8, I32, DType
from mirage_py.ugraph.ir.plan import Plan

needs_compiler = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
X = np.array([2.7, -2.7, 0.3, 100.0, -0.9] * 8)


def builder() -> ProgramBuilder:
    b = ProgramBuilder("casts")
    b.dim("n", 40)
    b.input("X", (40,), F32)
    return b


def cuda(b: ProgramBuilder) -> Plan:
    return replace(one_kernel(b.build(), {"n": 16}), backend="cuda")


def as_torch(x: torch.Tensor, types: list[DType]) -> torch.Tensor:
    for dtype in types:
        x = x.to(getattr(torch, dtype.torch_name))
    return x


CHAINS = [[F16], [BF16], [BF16, F16], [F16, F32], [I32], [I8], [BOOL], [I32, F16], [F16, I8]]


@needs_compiler
def test_constants_behind_casts():
    """Stored as they are, and in an expression."""
    b = builder()
    cases = [(value, types) for value in (0.1, -2.7) for types in CHAINS]
    for n, (value, types) in enumerate(cases):
        x = b.const(value)
        for dtype in types:
            x = b.cast(x, dtype)
        b.output(f"S{n}", x, "n", F32)
        b.output(f"P{n}", b.apply("mul", b.load("X", "n"), x), "n", F32)
        b.output(f"H{n}", x, "n", F16)
    got = run_emulated(cuda(b), {"X": np.ones(40)})
    for n, (value, types) in enumerate(cases):
        want = float(as_torch(torch.tensor(value, dtype=torch.float32), types))
        for name in (f"S{n}", f"P{n}"):
            assert set(got[name].tolist()) == {want}, (value, types, name)
        assert set(got[f"H{n}"].tolist()) == {float(np.float16(want))}


@needs_compiler
def test_values_behind_casts():
    b = builder()
    for n, types in enumerate(CHAINS):
        x = b.load("X", "n")
        for dtype in types:
            x = b.cast(x, dtype)
        b.output(f"S{n}", x, "n", F32)
        b.output(f"P{n}", b.apply("mul", x, b.const(0.5)), "n", F32)
    got = run_emulated(cuda(b), {"X": X})
    for n, types in enumerate(CHAINS):
        want = as_torch(torch.from_numpy(X).float(), types).double().numpy()
        np.testing.assert_array_equal(got[f"S{n}"], want, str(types))
        np.testing.assert_array_equal(got[f"P{n}"], want / 2, str(types))


def test_a_type_that_is_not_known_is_refused_where_it_is_cast_to():
    b = builder()
    b.output("Y", b.cast(b.load("X", "n"), F8E4M3), "n", F32)
    with pytest.raises(ScheduleError, match="is of type f8e4m3"):
        emit_cuda(cuda(b))


@pytest.mark.covering(1)
@needs_compiler
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("extents", [(19, 27, 50), (16, 40, 34), (1, 7, 18)], ids=str)
def test_products_of_halves_in_pairs(dtype: DType, extents: tuple[int, int, int]):
    """What a matrix product takes, and a sum of the same: sizes end within a vector and a tile."""
    m, n, k = extents
    b = ProgramBuilder("pairs")
    for name, extent in zip("mnk", extents, strict=True):
        b.dim(name, extent)
    # Rows of X begin at multiples of 16 bytes, wherever they end.
    b.input("X", (m, k), dtype, (-(-k // 8) * 8, 1))
    b.input("G", (k,), dtype)
    b.input("W", (k, n), dtype)
    gated = b.apply("mul", b.load("X", "mk"), b.load("G", "k"))
    b.output("Y", b.matmul(gated, b.load("W", "kn"), "k"), "mn", F32)
    b.output("Z", b.sum(gated, "k"), "m", F32)
    program = b.build()
    plan = replace(one_kernel(program, {"m": 16, "n": 16}), backend="cuda")
    assert f"mul_{dtype.name}x2" in "".join(kernel.body for kernel in emit_cuda(plan))
    draw = np.random.default_rng(0)
    half = getattr(torch, dtype.torch_name)
    inputs = {t.name: torch.from_numpy(draw.normal(size=t.shape)).to(half) for t in program.inputs}
    got = run_emulated(plan, {name: t.double().numpy() for name, t in inputs.items()})
    gains = inputs["G"]
    # Gains in float16 come as a share of the largest, so that no product is out of range.
    largest = gains.float().abs().max() if dtype == F16 else torch.tensor(1.0)
    rounded = (inputs["X"] * (gains.float() * (1.0 / largest)).to(half)).double() * largest.double()
    want = rounded @ inputs["W"].double()
    np.testing.assert_allclose(got["Y"], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["Z"], rounded.sum(1), rtol=1e-5, atol=1e-5)
