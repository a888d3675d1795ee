"""Runs of a tile in memory, and the tiles of kernels that transpose."""

from __future__ import annotations

import pytest
from cuda_plans import cuda_plan

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.search.tilings.runs import run_bytes, with_waste
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import H200
from mirage_py.ugraph.ir.node import STORES

TURNED = """
X[64, 64, 65536] : bf16
Y[a, c, b] = X[a, b, c]
"""
KERNEL = """
kernel turned {{
  grid a by 1, b by {b}, c by {c}
  %0 = load X[a, b, c]
  store Y[a, c, b] = %0
}}
"""


def _tiled(b: int, c: int, text: str = TURNED) -> TiledKernel:
    graph = cuda_plan(text, KERNEL.format(b=b, c=c), 0).ugraph
    return TiledKernel(Tiling(graph.scope, graph.kernels[0]))


def _runs(kernel: TiledKernel) -> list[int]:
    nodes = enumerate(kernel.block.nodes)
    return [run_bytes(kernel, k) for k, n in nodes if n.op == "load" or n.op in STORES]


def test_rows_go_on_where_a_tile_has_them_whole():
    assert _runs(_tiled(16, 128)) == [256, 32]
    assert _runs(_tiled(64, 32)) == [64, 2 * 64 * 32]


def test_short_runs_of_what_memory_holds_cost_on_the_side_that_has_them():
    kernel = _tiled(16, 128)
    touched, wasted = kernel.body.touched, with_waste(kernel, H200)
    assert wasted["X"] == touched["X"]
    assert 1.5 * touched["Y"] < wasted["Y"] < 2.5 * touched["Y"]
    rows = _tiled(64, 128, TURNED.replace("65536", "65534"))
    assert with_waste(rows, H200)["X"] > 1.05 * rows.body.touched["X"]
    small = _tiled(16, 128, TURNED.replace("65536", "256"))
    assert with_waste(small, H200) == small.body.touched


@pytest.mark.parametrize("backend", ["cuda", "triton"])
@pytest.mark.parametrize("rows", [64, 128])
def test_the_best_tiles_of_a_kernel_that_transposes_are_wide_on_both_sides(rows, backend):
    program = parse(TURNED.replace("64, 64,", f"64, {rows},"))
    best = rank_plans(program, H200, Request("h200", backend)).instances[0].plan.ugraph
    assert min(_runs(TiledKernel(Tiling(best.scope, best.kernels[0])))) >= 128


IMAGE = """
P = 65536
X[128, 8, 256, 256], Z[P] : bf16
Y[a, p, c] = X[a, c, p // 256, p % 256] + Z[p]
"""
IMAGE_KERNEL = """
kernel image {{
  grid p by {p}, c by {c}, a by 1
  %0 = load X[a, c, p // 256, p % 256]
  %1 = load Z[p]
  %2 = add %0, %1
  store Y[a, p, c] = %2
}}
"""


@pytest.mark.parametrize(
    ("p", "c", "runs"), [(1024, 1, [2048, 2048, 2]), (128, 8, [256, 256, 2048])]
)
def test_places_of_an_image_are_one_run(p: int, c: int, runs: list[int]):
    """With all channels in a block the tile is a run on both sides: on an H200 layouts of 134 MB
    changed in 65 us, with one channel in a block in 960."""
    graph = cuda_plan(IMAGE, IMAGE_KERNEL.format(p=p, c=c), 0).ugraph
    assert _runs(TiledKernel(Tiling(graph.scope, graph.kernels[0]))) == runs


def test_layouts_of_images_change_with_all_channels_in_a_block():
    best = rank_plans(parse(IMAGE), H200, Request("h200", "cuda")).instances[0].plan.ugraph
    assert best.kernels[0].grid_tiles["c"] == 8


SPLIT = """
X[16, 48, 4096] : bf16
Y[16, 48, 64, 64] : bf16
Y[a, c, q, p] = X[a, c, q * 64 + p]
"""
SPLIT_KERNEL = """
kernel split {{
  grid a by 1, c by 1, q by {q}, p by {p}
  %0 = load X[a, c, q * 64 + p]
  store Y[a, c, q, p] = %0
}}
"""


@pytest.mark.parametrize(("q", "p", "run"), [(64, 1, 1), (1, 64, 64), (4, 64, 256), (64, 16, 16)])
def test_parts_of_a_dimension_lie_apart_unless_the_tile_has_them_whole(q, p, run):
    """128 parts with one pixel of each took 8.2 ms on an H200, where 2.2 were predicted."""
    graph = cuda_plan(SPLIT, SPLIT_KERNEL.format(q=q, p=p), 0).ugraph
    kernel = TiledKernel(Tiling(graph.scope, graph.kernels[0]))
    assert _runs(kernel) == [2 * run, 2 * run]


MOVED = """
index w < 56, k < 3
X[16, 112, 112] : bf16
Y[16, 112, {wide}] : bf16
Y[a, h, {out}] = {value}
"""
MOVED_KERNEL = """
kernel moved {{
  grid a by 1, h by 1, {out} by {wide}
  %0 = load X[a, h, {index}]
  {more}store Y[a, h, {out}] = %{last}
}}
"""


@pytest.mark.parametrize(
    ("out", "index", "run"),
    [("c", "(c + 111) % 112", 112), ("c", "111 - c", 112), ("w", "(w * 2 + k + 111) % 112", 113)],
)
def test_what_wraps_goes_backwards_or_overlaps_is_a_run(out: str, index: str, run: int):
    """A roll by one, a flip and a max pool of 3 were predicted at three times their times."""
    wide = 112 if out == "c" else 56
    value = f"X[a, h, {index}]" if out == "c" else f"max[k](X[a, h, {index}])"
    index_c = "index c < 112\n" if out == "c" else ""
    text = index_c + MOVED.format(wide=wide, out=out, value=value)
    if out == "c":
        text = text.replace("index w < 56, k < 3\n", "")
    more = "" if out == "c" else "%1 = max[k] %0\n  "
    kernel = MOVED_KERNEL.format(out=out, wide=wide, index=index, more=more, last=int(out == "w"))
    graph = cuda_plan(text, kernel).ugraph
    (load, _) = _runs(TiledKernel(Tiling(graph.scope, graph.kernels[0])))
    assert load == 2 * run
