"""Float32 has rates of its own, in every model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fp32_plans import matmul_plan, matmul_program

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.search.extract.work import BlockWork
from mirage_py.search.model.baseline_model import fused_model_us
from mirage_py.search.model.cost_model import KernelModel, lower_bound_us
from mirage_py.search.model.library_model import library_estimate
from mirage_py.search.model.matmul_rates import fastest_rate
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import A100, H200
from mirage_py.ugraph.ir.dtypes import F16, F32
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph

SIZE = 8192
FLOPS = 2.0 * SIZE**3
HALVES = matmul_program(SIZE, SIZE, SIZE, dtype="f16")
EXACT, ROUNDED = (matmul_program(SIZE, SIZE, SIZE, p) for p in ("ieee", "tf32"))


def test_the_fastest_way_that_is_exact_enough() -> None:
    for target in (A100, H200):
        halves = fastest_rate(target, F16, rounds=False)
        assert fastest_rate(target, F16, rounds=True) == halves == target.tensor_flops_per_us
        assert fastest_rate(target, F32, rounds=True) == halves / 2
        assert fastest_rate(target, F32, rounds=False) == pytest.approx(halves / 6)
    slow = replace(A100, tensor_flops_per_us=5 * A100.vector_flops_per_us)
    assert fastest_rate(slow, F32, rounds=False) == A100.vector_flops_per_us


def test_the_roofline() -> None:
    floors = [lower_bound_us(p, H200) for p in (HALVES, ROUNDED, EXACT)]
    assert floors == pytest.approx([FLOPS / H200.tensor_flops_per_us * n for n in (1, 2, 6)])


def library_us(program: Program) -> float:
    call = LibraryCall("k", "matmul", ("X", "W"), "Y")
    return library_estimate(call, UGraph(program, (call,)), H200).time_us


@pytest.mark.parametrize("time_us", [library_us, lambda p: fused_model_us(p, H200)])
def test_the_library(time_us) -> None:
    """It has TF32 where torch's setting allows it, and CUDA cores else."""
    assert time_us(ROUNDED) == pytest.approx(2 * time_us(HALVES), rel=0.02)
    assert time_us(EXACT) == pytest.approx(FLOPS / (0.7 * H200.vector_flops_per_us), rel=0.02)


def test_derivations() -> None:
    halves, rounded, exact = (
        BlockWork(p).step_us("matmul", None, ("b", "n", "d"), None)
        for p in (HALVES, ROUNDED, EXACT)
    )
    assert halves < rounded / 1.9
    assert rounded < exact / 2.9


@pytest.mark.parametrize("target", [A100, H200])
def test_kernels(target) -> None:
    """One tiling: TF32 takes at least twice as long as halves, three of them longer, multiply-adds
    longest.
    """

    def time_us(program: Program, precision: Precision | None) -> float:
        (block,) = matmul_plan(program, None).ugraph.kernels
        model = KernelModel(TiledKernel(Tiling(program, block)), target)
        return model.estimate(LaunchConfig(4, (3,), precision=precision)).time_us

    halves = time_us(HALVES, None)
    ways = [time_us(ROUNDED, p) for p in (Precision.TF32, Precision.TF32X3, None)]
    assert halves * 1.2 < ways[0]
    assert ways[0] * 1.2 < ways[1]
    assert ways[1] * 1.2 < ways[2]
    assert FLOPS / target.vector_flops_per_us < ways[2]
