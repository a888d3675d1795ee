from __future__ import annotations

from dataclasses import replace

import clusters
import pytest

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.ugraph import GridAxis


def tiling_of(plan) -> Tiling:
    return Tiling(plan.ugraph.program, plan.ugraph.kernels[0])


def test_a_block_has_one_tile_of_what_the_cluster_has_whole():
    tiling = tiling_of(clusters.cluster_attention(parts=4))
    assert [tiling.padded("s_part", n) for n in range(len(tiling.block.sections))] == [1, 1, 1]
    assert tiling.blocks("s_part") == 4
    assert tiling.axes == (("q", 2), ("e", 2), ("s_part", 4), ("h", 2))
    assert tiling.grid_blocks == 32
    assert tiling.cluster_axes == (("s_part", 4),)
    assert tiling.cluster_blocks == 4


def test_which_reductions_go_from_block_to_block():
    tiling = tiling_of(clusters.cluster_attention(parts=4))
    found = {
        number: tiling.reduced_over_cluster(number) for number in range(len(tiling.block.nodes))
    }
    assert {number: dims for number, dims in found.items() if dims} == {
        14: ("s_part",),
        19: ("s_part",),
        21: ("s_part",),
    }


def test_a_cluster_of_one_block_is_none():
    plan = clusters.cluster_rms_norm_matmul(parts=4)
    block = plan.ugraph.kernels[0]
    grid = tuple(GridAxis(a.dim, 4, True) if a.cluster else a for a in block.grid)
    tiling = Tiling(plan.ugraph.program, replace(block, grid=grid))
    assert tiling.cluster_axes == ()
    assert tiling.cluster_blocks == 1
    assert not tiling.reduced_over_cluster(9)
    assert tiling.padded("d_part", 0) == 4


def test_triton_refuses_clusters():
    with pytest.raises(ScheduleError, match="share s_part in a cluster"):
        emit_triton(clusters.cluster_attention())
