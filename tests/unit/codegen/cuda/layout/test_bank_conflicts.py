from __future__ import annotations

import pytest
from oracles.swizzle import swizzled

from mirage_py.codegen.cuda.layout.bank_conflicts import WARP, wavefronts
from mirage_py.codegen.cuda.layout.shared_tile import SharedTile

SWIZZLES = (32, 64, 128)


def byte_of(row, column_bytes, swizzle_bytes, row_bytes):
    return swizzled(row * row_bytes + column_bytes, swizzle_bytes)


def ldmatrix_rows(column_bytes, swizzle_bytes, row_bytes):
    """Lane by lane the rows of four matrices one below the other, at a column of the tile."""
    return lambda lane: byte_of(lane, column_bytes, swizzle_bytes, row_bytes)


def conflicts(address, width_bytes, lanes=WARP):
    """Wavefronts of the group of lanes that takes most of them: 1 where there is no conflict."""
    return max(wavefronts(address, width_bytes, lanes))


def conflicts_of_ldmatrix(row_address):
    """Lane ``8 m + r`` names the 16 bytes that are row ``r`` of matrix ``m``."""
    return conflicts(row_address, 16, lanes=32)


@pytest.mark.parametrize("width", SWIZZLES)
def test_ldmatrix_has_no_conflicts_in_swizzled_rows(width):
    for column in range(0, width, 16):
        assert conflicts_of_ldmatrix(ldmatrix_rows(column, width, width)) == 1


@pytest.mark.parametrize(("row_bytes", "expected"), [(32, 2), (64, 4), (128, 8), (256, 8)])
def test_ldmatrix_has_conflicts_in_plain_rows(row_bytes, expected):
    assert conflicts_of_ldmatrix(ldmatrix_rows(0, 0, row_bytes)) == expected
    # A row that is 16 bytes longer lies elsewhere: the other way without conflicts.
    assert conflicts_of_ldmatrix(ldmatrix_rows(0, 0, row_bytes + 16)) == 1


@pytest.mark.parametrize("width", [0, *SWIZZLES])
def test_rows_are_copied_without_conflicts(width):
    """16 bytes a lane, neighbours along the row: with a swizzle and without."""
    row_bytes = width or 128
    pieces = row_bytes // 16

    def address(lane):
        return byte_of(lane // pieces, lane % pieces * 16, width, row_bytes)

    assert wavefronts(address, 16) == (1, 1, 1, 1)


def fragment(swizzle_bytes, row_bytes):
    """Lane ``4 g + t`` stores two halves at row ``g``, column ``2 t`` of an m16n8 fragment."""
    return lambda lane: byte_of(lane // 4, lane % 4 * 4, swizzle_bytes, row_bytes)


@pytest.mark.parametrize("width", SWIZZLES)
def test_fragments_are_stored_without_conflicts(width):
    assert conflicts(fragment(width, width), 4) == 1
    assert conflicts(fragment(0, width), 4) == width // 16


@pytest.mark.parametrize("swizzle", [0, *SWIZZLES])
def test_a_swizzle_moves_every_piece_to_a_place_of_its_own(swizzle):
    pieces = range(0, 8192, 16)
    assert sorted(swizzled(p, swizzle) for p in pieces) == list(pieces)
    assert all(swizzled(p + 5, swizzle) == swizzled(p, swizzle) + 5 for p in pieces)


def test_128_bytes_as_the_ptx_manual_has_them():
    """Piece ``c`` of the line ``r`` of 128 bytes lies at place ``c xor r mod 8``."""
    for row in range(16):
        for column in range(8):
            place = swizzled(128 * row + 16 * column, 128)
            assert divmod(place, 128) == (row, 16 * (column ^ row % 8))


@pytest.mark.parametrize(
    ("address", "width", "expected"),
    [
        (lambda lane: 4 * lane, 4, (1,)),
        (lambda lane: 0, 4, (1,)),  # one word for all
        (lambda lane: 2 * lane, 2, (1,)),  # two lanes to a word
        (lambda lane: 8 * lane, 4, (2,)),
        (lambda lane: 128 * lane, 4, (32,)),
        (lambda lane: 8 * lane, 8, (1, 1)),
        (lambda lane: 16 * lane, 8, (2, 2)),
        (lambda lane: 16 * lane, 16, (1, 1, 1, 1)),
        (lambda lane: 32 * lane if lane < 16 else 16 * lane, 16, (2, 2, 1, 1)),
    ],
)
def test_trips_of_each_group_of_lanes(address, width, expected):
    assert wavefronts(address, width) == expected
    assert conflicts(address, width) == max(expected)


@pytest.mark.parametrize("panels_flip", [False, True])
def test_lanes_that_read_two_panels_beside_codes_meet_in_no_bank(panels_flip):
    """Two lanes are 64 bytes apart along a row, two 128; the others are other rows."""
    columns = (("c", 0), *(("j", n) for n in range(7)))
    tile = SharedTile(columns, tuple(("b", n) for n in range(3)), 2, panels_flip)
    bits = (("j", 4), ("j", 5), ("b", 0), ("b", 1), ("b", 2))

    def address(lane):
        held = [bit for n, bit in enumerate(bits) if lane >> n & 1]
        place = sum(1 << tile.places()[bit] for bit in held)
        for flips in (tile.swizzle_places(), tile.panel_places()):
            for bit in held:
                place ^= 16 << flips[bit] if bit in flips else 0
        return place

    assert conflicts(address, 16, lanes=32) == (1 if panels_flip else 2)
