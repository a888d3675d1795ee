"""``stmatrix`` (sm_90): MMA fragments written to shared memory as four 8 x 8 matrices of halves at
a time, with rows of 16 bytes along either side of the fragment.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.cuda.layout.bank_conflicts import wavefronts
from mirage_py.codegen.cuda.layout.shared_tile import PIECE_BYTES, SharedTile
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Layout

# Bits of a matrix's row and of its column, and of the number of one of four.
_SIDE = 3
_MATRICES = 2


@dataclass(frozen=True, slots=True)
class StMatrix:
    """``rows`` is the layout of the rows that lanes name: lane ``8 m + r`` row ``r`` of matrix
    ``m``; its registers count the instructions. ``is_transposed``: a row in memory is a column of
    the fragment.
    """

    rows: Layout
    is_transposed: bool


def stmatrix(tile: SharedTile, layout: Layout) -> StMatrix | None:
    """How packed halves of a ``layout`` are stored to a tile; None where they do not lie as
    matrices do: pairs along columns, four lanes a row, and eight neighbours of the tile in a row.
    """
    registers, lanes = layout.registers, layout.lanes
    if len(registers) < 1 + _MATRICES or tile.element_bytes != 2:
        return None
    held = [b for b in lanes if b is not None]
    if len(held) < LANE_BITS:
        return None
    across, along = (registers[0], *held[:2]), tuple(held[2:])
    matrices = registers[1 : 1 + _MATRICES]
    for row, named, is_transposed in ((across, along, False), (along, across, True)):
        if tile.columns[:_SIDE] == row:
            rows = Layout(registers[1 + _MATRICES :], (*named, *matrices), layout.warps)
            return StMatrix(rows, is_transposed)
    return None


def stmatrix_wavefronts(tile: SharedTile, store: StMatrix) -> int:
    """Wavefronts that a warp needs to store all that it has."""
    places, flips = tile.places(), tile.swizzle_places()
    low = PIECE_BYTES.bit_length() - 1

    def address(lane: int) -> int:
        held = [b for n, b in enumerate(store.rows.lanes) if b is not None and lane >> n & 1]
        offset = sum(1 << places[b] for b in held)
        for b in held:
            offset ^= 1 << low + flips[b] if b in flips else 0
        return offset

    return store.rows.register_count * sum(wavefronts(address, PIECE_BYTES))
