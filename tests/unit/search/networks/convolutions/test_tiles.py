"""Tiles of fused convolutions: all that are ranked fit, and shapes decide what comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage_py.codegen.triton.fused_convolution import emit_fused_convolution
from mirage_py.search.networks.convolutions.tiles import (
    least_us,
    modelled_ns,
    pieces,
    ranked_tiles,
)
from mirage_py.search.networks.convolutions.window_tiles import windows_us
from mirage_py.targets import target
from mirage_py.ugraph.ir.convolution import FusedConvolution

H200 = target("h200")
FEW_PLACES = FusedConvolution(1, 512, 7, 7, 512, (3, 3), padding=(1, 1))
MANY_PLACES = FusedConvolution(16, 512, 64, 64, 512, (3, 3), padding=(1, 1))
NARROW = FusedConvolution(1, 128, 56, 56, 128, (3, 3), padding=(1, 1), groups=32)
FIRST = FusedConvolution(1, 3, 224, 224, 64, (7, 7), (2, 2), (3, 3))
DEPTHWISE = FusedConvolution(1, 44, 28, 28, 44, (5, 5), padding=(2, 2), groups=44)


@pytest.mark.parametrize("spec", [FEW_PLACES, MANY_PLACES, NARROW, FIRST, DEPTHWISE])
def test_ranked_tiles_fit(spec: FusedConvolution) -> None:
    ranked = ranked_tiles(spec, H200, 6)
    assert len(set(ranked)) == 6
    times = [modelled_ns(spec, tiles, H200) for tiles in ranked]
    assert times == sorted(times)
    for tiles in ranked:
        emit_fused_convolution(spec, tiles)
        held = (tiles.rows + tiles.columns) * tiles.depth * 2 * tiles.stages
        assert held < H200.smem_per_block_bytes


def test_few_places_and_long_sums_are_split() -> None:
    assert ranked_tiles(FEW_PLACES, H200, 1)[0].splits > 1
    best = ranked_tiles(MANY_PLACES, H200, 1)[0]
    assert (best.rows * best.columns, best.num_warps, best.splits) == (128 * 256, 8, 1)
    # Two of these have no room in an SM: three steps are under way in one.
    assert (best.depth, best.stages) == (64, 4)


def test_images_with_few_channels_have_tall_tiles() -> None:
    few = FusedConvolution(16, 64, 256, 256, 64, (3, 3), padding=(1, 1))
    best = ranked_tiles(few, H200, 1)[0]
    assert (best.rows, best.columns) == (256, 64)


def test_channels_that_are_not_aligned_move_in_small_pieces() -> None:
    aligned = FusedConvolution(16, 48, 56, 56, 48, (3, 3), padding=(1, 1))
    odd = replace(aligned, inputs=44, results=44)
    # A few products less, and twice the time: 20 us and not 10 on an H200.
    assert least_us(odd, H200) > 1.7 * least_us(aligned, H200)
    assert least_us(replace(odd, pitch=48), H200) == least_us(odd, H200)
    assert pieces(48) == pieces(48, 8, 0) == 1 < pieces(44) < pieces(22) < pieces(48, 3)


def test_single_channels_are_kernels_over_windows_and_pools_no_products() -> None:
    assert least_us(DEPTHWISE, H200) == windows_us(DEPTHWISE, H200)
    assert not ranked_tiles(replace(DEPTHWISE, pool="mean"), H200, 6)
    assert not ranked_tiles(replace(DEPTHWISE, is_planar=True), H200, 6)


def test_narrow_groups_are_packed_to_fill_a_step() -> None:
    best = ranked_tiles(NARROW, H200, 1)[0]
    assert best.channels(NARROW)[0] >= 16
    assert 32 % best.pack == 0
