from __future__ import annotations

import pytest
from oracles.swizzle import swizzled

from mirage_py.codegen.cuda.layout.blocked import blocked
from mirage_py.codegen.cuda.layout.layout_conversion import (
    _linear_wavefronts,
    layout_conversion,
    read_vector,
    written_vector,
)
from mirage_py.codegen.cuda.layout.shared_tile import PIECE_BYTES, SharedTile
from mirage_py.codegen.cuda.text.layout import Layout


def bits(dim, count, first=0):
    return tuple((dim, n) for n in range(first, first + count))


@pytest.mark.parametrize("columns", [4, 5, 6, 7])
def test_tiles_of_the_emitter_have_the_swizzle_that_is_free_of_conflicts(columns):
    """Rows of 32, 64, 128 and, in two panels, 256 bytes of halves."""
    tile = SharedTile(bits("k", columns), bits("m", 4), 2)
    places, flips = tile.places(), tile.swizzle_places()
    for m in range(16):
        for k in range(1 << columns):
            held = [b for b in tile.bits if (m if b[0] == "m" else k) >> b[1] & 1]
            plain = sum(1 << places[b] for b in held)
            flipped = sum(PIECE_BYTES << flips[b] for b in held if b in flips)
            assert plain ^ flipped == swizzled(plain, tile.swizzle_bytes)


def result_and_rows():
    """A fragment of results whose pairs lie along b, and rows of n in vectors of 16 bytes."""
    given = Layout(
        (("b", 0), ("n", 3), ("b", 3)),
        (*bits("b", 2, 1), *bits("n", 3)),
        (("n", 5), ("n", 4)),
    )
    want = Layout(bits("n", 3), (*bits("n", 3, 3), *bits("b", 2)), bits("b", 2, 2))
    return given, want


def test_a_result_is_turned_for_wide_stores_with_few_trips():
    given, want = result_and_rows()
    tile, count = layout_conversion(given, want, 2, in_pairs=True)
    assert tile is not None
    assert tile.dim == "n"
    assert written_vector(tile, given, in_pairs=True) == 1
    assert read_vector(tile, want) == 8
    # 8 stores of 2 bytes a lane without conflicts, and one load of 16 bytes: four groups of lanes.
    assert count == 8 + 4
    assert _linear_wavefronts(given, want, 2, in_pairs=True) > 3 * (8 + 4)


def test_where_the_order_of_lanes_is_as_good_it_stays():
    one = Layout(bits("d", 1), bits("d", 5, 1), bits("b", 2))
    other = Layout(bits("d", 1), bits("d", 5, 1), (("b", 1), ("b", 0)))
    assert layout_conversion(one, other, 2, in_pairs=True) == (None, 1 + 1)


def test_without_vectors_there_is_no_tile():
    layout = Layout((("b", 1), ("d", 0)), bits("d", 5, 1), (("b", 0),))
    tile, _ = layout_conversion(layout, layout, 4, in_pairs=False)
    assert tile is None


def test_rows_that_the_lanes_have_flip_banks_where_a_tile_is_transposed():
    # 64 channels by 128 pixels of halves: read along pixels, written along channels.
    pixels, channels = bits("p", 7), bits("c", 6)
    given = blocked((*pixels, *channels), 8, 3)
    want = blocked((*channels, *pixels), 8, 3)
    tile, count = layout_conversion(given, want, 2, in_pairs=True)
    assert tile is not None
    # Of 16 lanes along the pixels two meet in a bank, and not all.
    assert count <= 32 * 2 + 4 * 4
