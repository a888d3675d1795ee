"""The access cost beside the kernels by hand that it was read off."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from unit.search import programs

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.frontend.spec import parse
from mirage_py.search.enumerate.search import search
from mirage_py.search.model.access_cost import Accesses, slowdown, widest_accesses
from mirage_py.search.model.cost_model import KernelModel
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import H200
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph

BY_HAND = Path(__file__).parents[4] / "benchmarks" / "results" / "h200-pointwise-by-hand.json"
VALUES = 4096 * 393216
# Bytes of a block and its warps.
Shape = tuple[int, int]


def by_hand() -> dict[Shape, float]:
    """The times of kernels without hints, each block once, at most 512 threads."""
    found: dict[Shape, float] = {}
    for row in json.loads(BY_HAND.read_text(encoding="utf-8"))["rows"]:
        name, us = row["kernel"], row["us"]
        if hit := re.fullmatch(r"triton (\d+) warps (\d+) hint 0", name):
            shape = 2 * int(hit[1]), int(hit[2])
        elif hit := re.fullmatch(r"k<(\d+),0,0,0> threads (\d+) grid \d+", name):
            shape = 16 * int(hit[1]) * int(hit[2]), int(hit[2]) // 32
        else:
            continue
        if shape[1] <= 16:
            found[shape] = min(us, found.get(shape, us))
    return found


def cost(shape: Shape) -> float:
    size, warps = shape
    return slowdown(Accesses(size, size), warps, 2 * VALUES // size, 4 * VALUES, H200)


def test_the_kernels_by_hand_are_in_their_order() -> None:
    us = by_hand()
    assert len(us) >= 16
    costs = {shape: cost(shape) for shape in us}
    fastest = min(us.values())
    assert us[min(costs, key=costs.__getitem__)] <= 1.002 * fastest
    for shape in sorted(costs, key=costs.__getitem__)[:4]:
        assert us[shape] <= 1.02 * fastest
    ranks = np.array([np.argsort(np.argsort(list(v.values()))) for v in (us, costs)])
    assert np.corrcoef(ranks)[0, 1] >= 0.85
    for shape in us:
        if shape[0] >= 16 * 32 * shape[1]:
            assert costs[shape] == pytest.approx(us[shape] / fastest, abs=0.025)
    # Accesses of less than 16 bytes are the worst, those of 4 bytes by far.
    narrow = [shape for shape in us if shape[0] < 16 * 32 * shape[1]]
    assert len(narrow) == 3
    assert min(map(cost, narrow)) > 1.04
    assert max(map(cost, narrow)) > 1.4


def tiled(program: Program, **tiles: int) -> TiledKernel:
    found = (f.ugraph for f in search(program).families)
    ugraph = next(u for u in found if len(u.kernels) == 1)
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    grid = tuple(replace(a, tile=tiles.get(a.dim, 1)) for a in block.grid)
    return TiledKernel(Tiling(ugraph.scope, replace(block, grid=grid)))


def relu(rows: int, columns: int) -> Program:
    return parse(f"X[{rows}, {columns}] : bf16\nY[m, d] = relu(X[m, d])\n")


def test_it_is_of_pointwise_kernels_that_move_many_times_what_the_l2_holds() -> None:
    def accesses(kernel: TiledKernel) -> Accesses | None:
        return KernelModel(kernel, H200).load(LaunchConfig(4)).accesses

    assert accesses(tiled(relu(4096, 393216), d=1024)) == Accesses(2048, 2048)
    assert accesses(tiled(relu(4096, 393216), d=256, m=4)) == Accesses(2048, 512)
    assert accesses(tiled(relu(4096, 8192), d=1024)) is None
    rows = tiled(programs.row_softmax(65536, 8192))
    assert KernelModel(rows, H200).load(LaunchConfig(4)).moved_bytes > 8 * H200.l2_bytes
    assert accesses(rows) is None


def test_the_widest_tile_counts() -> None:
    """A bias is read by all, and a kernel that transposes has one side in long runs."""
    text = "X[4096, 65536] : bf16, B[65536] : f32\nY[m, d] : f32 = X[m, d] + B[d]\n"
    assert widest_accesses(tiled(parse(text), d=512)) == Accesses(2048, 2048)
    turned = parse("X[65536, 4096] : bf16\nY[m, d] = relu(X[d, m])\n")
    assert widest_accesses(tiled(turned, d=64, m=16)) == Accesses(2048, 128)


@pytest.mark.parametrize(("values", "measured"), [(4096 * 14336, 69.1 / 56.8), (7 << 28, 1.263)])
def test_no_more_blocks_start_than_one_in_each_cycle(values: int, measured: float) -> None:
    """Of 1 KB, of two warps each, beside blocks of 2 KB, on an H200: 117 MB and 3.8 GB."""
    small, usual = (
        KernelModel(tiled(relu(1, values), d=size), H200).estimate(LaunchConfig(warps)).time_us
        for size, warps in ((512, 2), (1024, 4))
    )
    assert small / usual == pytest.approx(measured, rel=0.05)
