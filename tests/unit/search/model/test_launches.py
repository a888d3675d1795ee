"""Launch options: the kernels that use programmatic dependent launch."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
import several_kernels
from cuda_plans import cuda_plan
from window_plans import CHANNELS, PLACE, windows

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.search.model.cost_model import KernelModel
from mirage_py.search.model.launches import (
    BackEnd,
    keeping_for_later,
    launch_options,
    starting_early,
    warp_counts,
    without_idle_hints,
)
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import target
from mirage_py.ugraph.ir.dtypes import BF16, F32, DType
from mirage_py.ugraph.ir.launch_choices import (
    BlockOrder,
    MatmulInstruction,
    Precision,
    StoreMode,
)
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.ugraph import BlockGraph


def starts(name: str, on: str, backend: BackEnd = "triton") -> list[bool]:
    plan = several_kernels.plan(name)
    options = starting_early(plan.ugraph, plan.options, target(on), backend)
    return [o.early_start for o in options]


@pytest.mark.parametrize("name", ["split_attention", "split_rms_norm_matmul"])
def test_a_kernel_after_another_is_a_dependent_launch(name: str) -> None:
    assert starts(name, "h200") == [False, True]
    assert starts(name, "b200") == [False, True]


def test_in_cuda_the_first_one_does_too() -> None:
    """Dependent on the kernel before the plan: it reads nothing before it has waited."""
    assert starts("split_attention", "h200", "cuda") == [True, True]
    assert starts("split_attention", "a100", "cuda") == [False, False]


def test_not_where_the_hardware_cannot() -> None:
    assert starts("split_attention", "a100") == [False, False]


def test_no_dependent_launch_after_a_library_call_or_a_cleared_tensor() -> None:
    for name in ("library_prologue", "library_epilogue", "split_matmul_added"):
        assert True not in starts(name, "h200")


def test_other_flags_stay() -> None:
    plan = several_kernels.plan("split_attention")
    first, second = plan.options
    options = (first, LaunchConfig(second.num_warps, evict_first=("A",)))
    _, found = starting_early(plan.ugraph, options, target("h200"))
    assert found == replace(options[1], early_start=True)


def test_what_a_later_kernel_reads_stays_in_the_cache() -> None:
    plan = several_kernels.plan("split_attention")
    hints = ("A", "K")
    options = tuple(replace(o, evict_first=hints) for o in plan.options)
    first, second = keeping_for_later(plan.ugraph, options)
    assert first.evict_first == ("K",)
    assert second.evict_first == hints


def hinted(spec: str, kernel: str) -> tuple[str, ...]:
    """What is left of hints for all that a kernel loads."""
    ugraph = cuda_plan(spec, kernel).ugraph
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    names = tuple(sorted({n.access.tensor for _, n in block.loads()}))
    (options,) = without_idle_hints(ugraph, (LaunchConfig(evict_first=names),), target("h200"))
    return options.evict_first


SUM = """
kernel added {
  grid d by 1024, m by 1
  %0 = load X[m, d]
  %1 = load R[m, d]
  %2 = add %0, %1
  store Y[m, d] = %2
}
"""
ROWS = """
kernel rows {
  grid m by 1
  %0 = load X[m, d]
  %1 = sum[d] %0
  store Y[m] = %1
}
"""


@pytest.mark.parametrize(("rows", "hints"), [(4096, ("R", "X")), (16384, ())])
def test_results_larger_than_the_cache_take_hints_away(rows: int, hints: tuple[str, ...]) -> None:
    spec = f"X[{rows}, 4096], R[{rows}, 4096] : bf16\nY[m, d] = X[m, d] + R[m, d]\n"
    assert hinted(spec, SUM) == hints


def test_where_little_is_written_hints_stay() -> None:
    """Sums of rows; and a loop, in which other blocks' tiles are worth room in the cache."""
    spec = "X[65536, 4096] : bf16\nY[m] : f32 = sum[d](X[m, d])\n"
    assert hinted(spec, ROWS) == ("X",)
    looped = ROWS.replace("  %0", "  loop d by 1024 {\n  %0").replace(
        "%0\n  store", "%0\n  %2 = accum_sum %1\n  }\n  store"
    )
    many = "X[67108864, 8] : bf16\nY[m] : f32 = sum[d](X[m, d])\n"
    assert hinted(many, ROWS) == ()
    assert hinted(many, looped.replace("by 1024", "by 4").replace("= %1", "= %2")) == ("X",)


def test_what_is_read_later_is_worth_room() -> None:
    spec = "X[65536, 4096] : bf16\nY[m, d] = relu(X[m, d])\n"
    plan = cuda_plan(spec, RELU)
    ugraph = plan.ugraph
    (block,) = ugraph.kernels
    options = (LaunchConfig(evict_first=("X",)),)
    assert without_idle_hints(ugraph, options, target("h200"))[0].evict_first == ()
    assert isinstance(block, BlockGraph)
    again = replace(block, name="again", nodes=tuple(map(reading_y, block.nodes)))
    both = replace(ugraph, kernels=(block, again))
    first, second = without_idle_hints(both, options * 2, target("h200"))
    assert (first.evict_first, second.evict_first) == (("X",), ())


RELU = """
kernel relu {
  grid d by 1024, m by 1
  %0 = load X[m, d]
  %1 = relu %0
  store Y[m, d] = %1
}
"""


def reading_y(node: Node) -> Node:
    return replace(node, attr=replace(node.access, tensor="Y")) if node.op == "load" else node


def test_in_cuda_tiles_of_attention_are_fetched_by_a_warp_of_their_own_first() -> None:
    plan = several_kernels.plan("split_attention")
    block = plan.ugraph.kernels[0]
    assert isinstance(block, BlockGraph)
    sections = tuple(replace(s, tile=64) if s.loop else s for s in block.sections)
    grid = tuple(replace(a, tile=64 if a.dim in ("q", "t", "e") else 1) for a in block.grid)
    tiling = Tiling(plan.ugraph.scope, replace(block, grid=grid, sections=sections))
    kernel = TiledKernel(tiling)
    h200 = target("h200")
    first, second, third = islice(launch_options(kernel, "cuda", h200), 3)
    assert [o.producer_warps for o in (first, second, third)] == [True, True, False]
    assert [o.overlap for o in (first, second, third)] == [None, "on", None]
    assert all(not o.producer_warps for o in launch_options(kernel, "cuda", target("a100")))
    assert all(not o.producer_warps for o in launch_options(kernel, "triton", h200))


CAUSAL = """
Q[8, 2048, 64], K[8, 64, 2048], V[8, 2048, 64] : f16
let A[h, q, s] = where(s <= q, sum[c](Q[h, q, c] * K[h, c, s]), -1e30)
O[h, q, e] = sum[s](softmax[s](A[h, q, s]) * V[h, s, e])
"""

CAUSAL_KERNEL = """
kernel causal {
  grid q by 64, h by 1
  %0 = load Q[h, q, c]
  %1 = const -1e+30
  loop s by 64 {
    %2 = load K[h, c, s]
    %3 = matmul[c] %0, %2
    %4 = mask (s <= q)
    %5 = where %4, %3, %1
    %6 = max[s] %5
    %7 = accum_max[shift] %6
    %8 = sub %5, %7
    %9 = exp %8
    %10 = mul %9, %4
    %11 = sum[s] %10
    %12 = accum_rescaled[1] %11, %7
    %13 = load V[h, s, e]
    %14 = matmul[s] %10, %13
    %15 = accum_rescaled[1] %14, %7
  }
  %16 = div %15, %12
  store O[h, q, e] = %16
}
"""


def test_where_masks_leave_unequal_work_all_that_runs_ahead_comes_first() -> None:
    plan = cuda_plan(CAUSAL, CAUSAL_KERNEL, 3)
    block = plan.ugraph.kernels[0]
    assert isinstance(block, BlockGraph)
    kernel = TiledKernel(Tiling(plan.ugraph.scope, block))
    options = list(launch_options(kernel, "cuda", target("h200")))
    first, second = options[:2]
    for ahead in (first, second):
        assert (ahead.block_order, ahead.rescaling) == ("longest", "lazy")
        assert ahead.persistent_blocks == 0  # two blocks of five warps share an SM, and overlap
    assert [o.overlap for o in options[:4]] == [None, "across", "on", None]
    assert all(o.producer_warps for o in options[:4])
    wide = [o for o in options if o.num_warps == 8][:2]
    assert [(o.persistent_blocks, o.ping_pong) for o in wide] == [(132, True), (132, False)]
    assert [o.overlap for o in wide] == ["across", None]


@pytest.mark.parametrize(("columns", "first"), [(64, "across"), (128, "across"), (256, None)])
def test_late_matmuls_come_first_where_sums_leave_them_room(
    columns: int, first: str | None
) -> None:
    """Heads of Llama (64, 128) and Gemma (256): 128 rows fit two warp groups in all cases."""
    spec = CAUSAL.replace("64", str(columns))
    plan = cuda_plan(spec, CAUSAL_KERNEL.replace("q by 64", "q by 128"), 3)
    block = plan.ugraph.kernels[0]
    assert isinstance(block, BlockGraph)
    kernel = TiledKernel(Tiling(plan.ugraph.scope, block))
    model = KernelModel(kernel, target("h200"))
    choices = [o for o in launch_options(kernel, "cuda", model.target) if o.num_warps == 8]
    fitting = [o for o in choices if model.estimate(o).time_us < float("inf")]
    assert (fitting[0].overlap, fitting[0].ping_pong) == (first, first is not None)


def test_in_cuda_straight_code_without_products_may_have_one_warp() -> None:
    """Unless a thread had more than 32 numbers of its widest value."""
    plan = several_kernels.plan("split_attention")
    first, second = plan.ugraph.kernels
    assert isinstance(first, BlockGraph)
    assert isinstance(second, BlockGraph)

    def counts(block: BlockGraph, backend: BackEnd = "cuda") -> set[int]:
        return set(warp_counts(block, Tiling(plan.ugraph.scope, block), backend))

    assert counts(first) == {4, 8}
    assert counts(second, "triton") == {1, 2, 4, 8}
    small = tuple(replace(a, tile=1 if a.dim != "e" else 16) for a in second.grid)
    assert counts(replace(second, grid=small)) == {1, 2, 4, 8}
    wide = tuple(replace(a, tile=64 if a.dim in ("q", "t", "e") else 1) for a in second.grid)
    assert counts(replace(second, grid=wide)) == {4, 8}


def of_windows(
    places: int, results: int, dtype: DType = BF16, loop: int = CHANNELS, **more: int
) -> TiledKernel:
    """A convolution of 128 x 128 places with such a tile."""
    tiles = {"p": places, "o": results, **more}
    square = (PLACE // 256, PLACE % 256)
    plan = windows(square, {"p": 256 * 256}, (258, 258), tiles=tiles, dtype=dtype, loop=loop)
    (block,) = plan.ugraph.kernels
    assert isinstance(block, BlockGraph)
    return TiledKernel(Tiling(plan.ugraph.program, block), backend="cuda")


def persistent(kernel: TiledKernel, on: str = "h200") -> list[int]:
    found = launch_options(kernel, "cuda", target(on))
    return sorted({o.num_warps for o in found if o.persistent_blocks})


def test_windows_with_large_tiles_may_be_a_persistent_kernel() -> None:
    large = of_windows(512, 64)
    assert persistent(large) == [8]
    assert persistent(large, "a100") == []
    assert persistent(of_windows(128, 64)) == []
    # TMA reaches neither several samples nor several positions of a window.
    assert persistent(of_windows(256, 64, n=2)) == []
    assert persistent(of_windows(512, 64, loop=2 * CHANNELS)) == []


def by_wgmma(kernel: TiledKernel, on: str = "h200") -> set[bool]:
    """Of the options with TF32 by wgmma, whether they have producer warps."""
    found = launch_options(kernel, "cuda", target(on))
    return {o.producer_warps for o in found if o.matmul is MatmulInstruction.WGMMA}


def test_float32_goes_by_wgmma_where_tma_rounds_it() -> None:
    assert by_wgmma(of_windows(128, 64, F32)) == {True}
    assert by_wgmma(of_windows(128, 64, F32), "a100") == set()
    assert by_wgmma(of_windows(32, 32, F32)) == set()
    assert by_wgmma(of_windows(64, 64, F32, n=2)) == set()
    options = list(launch_options(of_windows(128, 64, F32), "cuda", target("h200")))
    exact = [o for o in options if o.precision is not Precision.TF32]
    assert exact
    assert all(o.matmul is not MatmulInstruction.WGMMA for o in exact)


MATMUL = """
M = 4096, D = 4096, N = 4096
X[M, D], W[D, N] : bf16
Y[m, n] = sum[d](X[m, d] * W[d, n])
"""
MATMUL_KERNEL = """
kernel program {
  grid m by ROWS, n by COLUMNS
  loop d by 64 {
    %0 = load X[m, d]
    %1 = load W[d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }
  store Y[m, n] = %3
}
"""


def of_matmul(rows: int, columns: int) -> KernelModel:
    tiled = MATMUL_KERNEL.replace("ROWS", str(rows)).replace("COLUMNS", str(columns))
    plan = cuda_plan(MATMUL, tiled, 4)
    (block,) = plan.ugraph.kernels
    assert isinstance(block, BlockGraph)
    return KernelModel(
        TiledKernel(Tiling(plan.ugraph.scope, block), backend="cuda"), target("h200")
    )


def test_large_matmuls_are_a_persistent_kernel_first() -> None:
    """In the order and with the stores that were the fastest on an H200."""
    for tiles, warps in (((128, 256), 8), ((256, 128), 8), ((128, 128), 8), ((128, 128), 4)):
        model = of_matmul(*tiles)
        found = launch_options(model.kernel, "cuda", model.target)
        chosen = [o for o in found if (o.num_warps, o.num_stages) == (warps, (4,))]
        assert chosen[0].persistent_blocks == (132 if warps == 8 else 0)
        assert chosen[0].block_order is (BlockOrder.GROUPED if warps == 8 else None)
        assert {o.stores for o in chosen} == {StoreMode.LANES}
        assert {o.persistent_blocks for o in chosen[1:]} == {0}


def test_a_persistent_kernel_takes_less_between_tiles() -> None:
    """128 x 256 results took 1.5 to 1.8 us less a wave on an H200."""
    model = of_matmul(128, 256)
    found = launch_options(model.kernel, "cuda", model.target)
    staying, usual, *_ = (o for o in found if (o.num_warps, o.num_stages) == (8, (4,)))
    waves = model.load(usual).waves
    assert model.load(staying).waves == waves == 4
    saved = model.estimate(usual).time_us - model.estimate(staying).time_us
    assert 1.5 <= saved / (waves - 1) <= 1.8
