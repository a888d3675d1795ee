"""Shared memory as estimated beside what the compiler takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from families import stabilize
from fp32_plans import KERNEL, matmul_program
from several_kernels import over
from unit.search import programs
from unit.search.kernels import in_all_rings

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.runtime.compile.compile import compile_kernel
from mirage_py.search.model.footprint import registers, shared_memory
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.search.tilings.tilings import tilings
from mirage_py.targets import H200
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph


@pytest.fixture(scope="module")
def attention() -> UGraph:
    found = in_all_rings(programs.attention()).families
    return stabilize(next(f.ugraph for f in found if loops(f.ugraph.kernels) == ["s"]))


def loops(kernels: Sequence[Kernel]) -> list[str]:
    """What one kernel loops over."""
    block, *others = kernels
    if others or not isinstance(block, BlockGraph):
        return []
    return [s.loop for s in block.sections if s.loop]


def test_the_weights_of_attention_stay_in_registers(attention: UGraph) -> None:
    """They are the rows of a warp-group product: what is left are the slots of keys and values."""
    (block,) = attention.kernels
    assert isinstance(block, BlockGraph)
    options = LaunchConfig(4, (3,))
    kernel = next(
        k
        for k in tilings(attention.scope, block, ())
        if k.block.grid_tiles == {"h": 1, "q": 64, "e": 64}
        and [s.tile for s in k.block.sections if s.loop] == [128]
    )
    (emitted,) = emit_triton(Plan(replace(attention, kernels=(kernel.block,)), (options,)))
    taken = compile_kernel(emitted, 90).smem_bytes
    predicted = shared_memory(kernel, options, H200).bytes(options.num_stages)
    assert taken <= predicted <= 1.1 * taken


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "num_warps"),
    [(64, 128, 32, 4), (128, 128, 64, 8), (128, 128, 16, 4), (256, 64, 64, 8)],
)
def test_a_split_wgmma_holds_both_parts_of_its_rows_and_two_sums(
    rows: int, columns: int, inner: int, num_warps: int
) -> None:
    """The last two spill: they do not fit by the model, either."""
    tiles = KERNEL.replace("b by 64, n by 64", f"b by {rows}, n by {columns}")
    program = matmul_program(256, 256, 256)
    ugraph = over(program, tiles.replace("d by 32", f"d by {inner}"))
    options = LaunchConfig(num_warps, (3,), precision=Precision.TF32X3)
    (emitted,) = emit_triton(Plan(ugraph, (options,)))
    facts = compile_kernel(emitted, 90)
    assert facts.registers is not None
    assert facts.spills is not None
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    estimated = registers(TiledKernel(Tiling(program, block)), options, H200)
    limit = H200.max_registers_per_thread
    assert (estimated > limit) == (facts.spills > 0)
    assert estimated == pytest.approx(facts.registers + facts.spills, abs=30)
