"""In what form a value lies in shared memory while it goes from one layout to another.

Word by word in the order of the lanes that write, or as a swizzled tile of rows along the vectors
that are read: whichever needs fewer trips to shared memory, counted lane by lane ("Linear Layouts",
Zhou et al., 2025, finds such swizzles by algebra).
"""

from __future__ import annotations

from mirage_py.codegen.cuda.layout.bank_conflicts import BANK_BYTES, trips
from mirage_py.codegen.cuda.layout.shared_tile import PIECE_BYTES, SharedTile
from mirage_py.codegen.cuda.layout.stmatrix import MatrixStore, matrix_store, matrix_store_trips
from mirage_py.codegen.cuda.text.layout import Bit, Layout


def turning_tile(
    given: Layout, want: Layout, element_bytes: int, in_pairs: bool, has_matrices: bool = False
) -> SharedTile | None:
    """The tile by which a value is turned; None for the order of lanes.

    ``in_pairs``: values are pairs of halves, and stay so where a pair lies along the tile's rows;
    ``has_matrices``: they may be stored as matrices.
    """
    tile = _tile(want, element_bytes)
    if tile is None:
        return None
    by_lanes = _linear_trips(given, want, element_bytes, in_pairs)
    return tile if _turned_by(tile, given, want, in_pairs, has_matrices) < by_lanes else None


def turning_trips(given: Layout, want: Layout, element_bytes: int, in_pairs: bool) -> int:
    """Trips to shared memory that a warp needs to turn a value in the better form."""
    by_lanes = _linear_trips(given, want, element_bytes, in_pairs)
    tile = _tile(want, element_bytes)
    return by_lanes if tile is None else min(by_lanes, _turned_by(tile, given, want, in_pairs))


def stored_as_matrices(tile: SharedTile, given: Layout, in_pairs: bool) -> MatrixStore | None:
    """How a value goes to the tile as matrices, where it can and that takes no more trips."""
    store = matrix_store(tile, given) if in_pairs else None
    if store is None:
        return None
    by_words = _tile_trips(tile, given, written_vector(tile, given, in_pairs))
    return store if matrix_store_trips(tile, store) <= by_words else None


def _tile(want: Layout, element_bytes: int) -> SharedTile | None:
    """Rows along what a thread reads at once; None where that is a single element."""
    if not want.registers or want.register_run(want.registers[0][0]) == 1:
        return None
    dim = want.registers[0][0]
    bits = sorted(want.bits())
    columns = tuple(b for b in bits if b[0] == dim)
    return SharedTile(columns, tuple(b for b in bits if b[0] != dim), element_bytes)


def _turned_by(
    tile: SharedTile, given: Layout, want: Layout, in_pairs: bool, has_matrices: bool = False
) -> int:
    written = _tile_trips(tile, given, written_vector(tile, given, in_pairs))
    store = stored_as_matrices(tile, given, in_pairs) if has_matrices else None
    if store is not None:
        written = matrix_store_trips(tile, store)
    return written + _tile_trips(tile, want, read_vector(tile, want))


def written_vector(tile: SharedTile, given: Layout, in_pairs: bool) -> int:
    """Elements that a thread writes at once."""
    return 2 if in_pairs and given.registers[:1] == tile.columns[:1] else 1


def read_vector(tile: SharedTile, want: Layout) -> int:
    """Elements that a thread reads at once."""
    return min(want.register_run(tile.dim), PIECE_BYTES // tile.element_bytes)


def _tile_trips(tile: SharedTile, layout: Layout, vector: int) -> int:
    places, flips = tile.places(), tile.swizzle_places()
    low = PIECE_BYTES.bit_length() - 1

    def address(lane: int) -> int:
        held = [b for n, b in enumerate(layout.lanes) if b is not None and lane >> n & 1]
        offset = sum(1 << places[b] for b in held)
        for b in held:
            offset ^= 1 << low + flips[b] if b in flips else 0
        return offset

    return layout.register_count // vector * sum(trips(address, vector * tile.element_bytes))


def _linear_trips(given: Layout, want: Layout, element_bytes: int, in_pairs: bool) -> int:
    first = given.registers[:1]
    pairs = in_pairs and want.registers[:1] == first
    bits: list[Bit] = [b for b in (*given.lanes, *given.registers, *given.warps) if b is not None]
    if pairs:
        bits.remove(first[0])
    width = BANK_BYTES if pairs else element_bytes
    place = {bit: width << n for n, bit in enumerate(bits)}

    def of(layout: Layout) -> int:
        def address(lane: int) -> int:
            held = (b for n, b in enumerate(layout.lanes) if b is not None and lane >> n & 1)
            return sum(place[b] for b in held)

        count = layout.register_count // (2 if pairs else 1)
        return count * sum(trips(address, width))

    return of(given) + of(want)
