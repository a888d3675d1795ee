"""Tiles of fused convolutions: all that are ranked fit, and shapes decide what comes first."""

from __future__ import annotations

import pytest

from mirage_py.codegen.triton.fused_convolution import emit_fused_convolution
from mirage_py.search.networks.convolution_tiles import modelled_ns, ranked_tiles
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


def test_depthwise_convolutions_are_tried_with_and_without_a_product() -> None:
    found = ranked_tiles(DEPTHWISE, H200, 6)
    assert sum(tiles.by_channel for tiles in found) == 3
    assert not any(tiles.by_channel for tiles in ranked_tiles(NARROW, H200, 6))


def test_narrow_groups_are_packed_to_fill_a_step() -> None:
    best = ranked_tiles(NARROW, H200, 1)[0]
    assert best.channels(NARROW)[0] >= 16
    assert 32 % best.pack == 0
