"""Row reduction in the producer warps: launch options, and their prediction."""

from __future__ import annotations

from cuda_plans import cuda_plan

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.search.model.cost_model import KernelModel
from mirage_py.search.model.launches import launch_options
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import target
from mirage_py.ugraph.ir.ugraph import BlockGraph

PROGRAM = """
Q[256, 64], K[4096, 64], V[4096, 64] : f16
let n[s] = sqrt(sum[c](K[s, c] * K[s, c]))
O[q, e] = sum[s](exp(sum[c](Q[q, c] * K[s, c]) / n[s]) * V[s, e])
"""
KERNEL = """
kernel normed {
  grid q by 64
  %0 = load Q[q, c]
  loop s by 128 {
    %1 = load K[s, c]
    %2 = matmul[c] %0, %1
    %3 = square %1
    %4 = sum[c] %3
    %5 = sqrt %4
    %6 = div %2, %5
    %7 = exp %6
    %8 = load V[s, e]
    %9 = matmul[s] %7, %8
    %10 = accum_sum %9
  }
  store O[q, e] = %10
}
"""
H200 = target("h200")


def tiled(text: str = KERNEL) -> TiledKernel:
    graph = cuda_plan(PROGRAM, text, 3).ugraph
    (block,) = graph.kernels
    assert isinstance(block, BlockGraph)
    return TiledKernel(Tiling(graph.scope, block))


def test_they_come_first_and_cost_less() -> None:
    kernel = tiled()
    options = list(launch_options(kernel, "cuda", H200))
    assert [o.producer_sums for o in options[:3]] == [True, True, False]
    assert all(o.producer_warps for o in options if o.producer_sums)
    model = KernelModel(kernel, H200)
    beside, alone = options[0], options[0].with_flag("sums", "")
    assert model.estimate(beside).time_us < model.estimate(alone).time_us


def test_the_sum_is_not_the_work_of_warps_that_compute() -> None:
    kernel = tiled()
    (_, plain, _), (_, fed, _) = kernel.sections, kernel.fed_sections
    assert len(plain.sums) == 1
    assert not fed.sums
    assert plain.loads == fed.loads
    # Squares and their sum, and the tile's halves as floats.
    assert plain.vector_ops - fed.vector_ops >= 4 * 128 * 64


def test_nor_without_such_a_sum() -> None:
    text = "\n".join(line for line in KERNEL.splitlines() if "square" not in line)
    text = text.replace("%4 = sum[c] %3", "%3 = square %2\n    %4 = add %3, %2")
    text = text.replace("%5 = sqrt %4", "%5 = abs %4")
    assert not any(o.producer_sums for o in launch_options(tiled(text), "cuda", H200))


def test_nor_on_a_gpu_without_warp_groups() -> None:
    assert not any(o.producer_sums for o in launch_options(tiled(), "cuda", target("a100")))
