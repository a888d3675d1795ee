"""Layout conversions: the form of a value in shared memory between two register layouts.

Either word by word in the order of the writing lanes, or as a swizzled tile with rows along the
vectors that are read: whichever takes fewer shared-memory wavefronts, counted lane by lane ("Linear
Layouts", Zhou et al., 2025, finds such swizzles by algebra).
"""

from __future__ import annotations

from mirage_py.codegen.cuda.layout.bank_conflicts import BANK_BYTES, wavefronts
from mirage_py.codegen.cuda.layout.shared_tile import PIECE_BYTES, SharedTile
from mirage_py.codegen.cuda.layout.stmatrix import StMatrix, stmatrix, stmatrix_wavefronts
from mirage_py.codegen.cuda.text.layout import Bit, Layout


def layout_conversion(
    given: Layout, target: Layout, element_bytes: int, in_pairs: bool, has_stmatrix: bool = False
) -> tuple[SharedTile | None, int]:
    """The tile by which a layout is converted, None for the order of lanes, and the wavefronts that
    a warp needs for it.

    ``in_pairs``: values are pairs of halves, and stay so where a pair lies along the tile's rows;
    ``has_stmatrix``: they may be stored as matrices.
    """
    best: tuple[SharedTile | None, int] = (
        None, _linear_wavefronts(given, target, element_bytes, in_pairs)
    )  # fmt: skip
    for tile in _tiles(given, target, element_bytes):
        count = _conversion_wavefronts(tile, given, target, in_pairs, has_stmatrix)
        best = (tile, count) if count < best[1] else best
    return best


def stmatrix_store(tile: SharedTile, given: Layout, in_pairs: bool) -> StMatrix | None:
    """How a value goes to the tile as matrices, where it can and that takes no more wavefronts."""
    store = stmatrix(tile, given) if in_pairs else None
    if store is None:
        return None
    by_words = _tile_wavefronts(tile, given, written_vector(tile, given, in_pairs))
    return store if stmatrix_wavefronts(tile, store) <= by_words else None


def _tiles(given: Layout, target: Layout, element_bytes: int) -> list[SharedTile]:
    """Tiles with rows along what a thread reads at once, in the order of the rows' numbers and with
    those first that the writing lanes have: rows flip banks by their lowest bits. None where a
    thread reads single elements.
    """
    if not target.registers or target.register_run(target.registers[0][0]) == 1:
        return []
    dim = target.registers[0][0]
    bits = sorted(target.bits())
    columns = tuple(b for b in bits if b[0] == dim)
    rows = tuple(b for b in bits if b[0] != dim)
    by_lanes = tuple(sorted(rows, key=lambda b: b not in given.lanes))
    orders = dict.fromkeys((rows, by_lanes))
    return [SharedTile(columns, order, element_bytes) for order in orders]


def _conversion_wavefronts(
    tile: SharedTile, given: Layout, target: Layout, in_pairs: bool, has_stmatrix: bool = False
) -> int:
    written = _tile_wavefronts(tile, given, written_vector(tile, given, in_pairs))
    store = stmatrix_store(tile, given, in_pairs) if has_stmatrix else None
    if store is not None:
        written = stmatrix_wavefronts(tile, store)
    return written + _tile_wavefronts(tile, target, read_vector(tile, target))


def written_vector(tile: SharedTile, given: Layout, in_pairs: bool) -> int:
    """Elements that a thread writes at once."""
    return 2 if in_pairs and given.registers[:1] == tile.columns[:1] else 1


def read_vector(tile: SharedTile, target: Layout) -> int:
    """Elements that a thread reads at once."""
    return min(target.register_run(tile.dim), PIECE_BYTES // tile.element_bytes)


def _tile_wavefronts(tile: SharedTile, layout: Layout, vector: int) -> int:
    places, flips = tile.places(), tile.swizzle_places()
    low = PIECE_BYTES.bit_length() - 1

    def address(lane: int) -> int:
        held = [b for n, b in enumerate(layout.lanes) if b is not None and lane >> n & 1]
        offset = sum(1 << places[b] for b in held)
        for b in held:
            offset ^= 1 << low + flips[b] if b in flips else 0
        return offset

    return layout.register_count // vector * sum(wavefronts(address, vector * tile.element_bytes))


def _linear_wavefronts(given: Layout, target: Layout, element_bytes: int, in_pairs: bool) -> int:
    first = given.registers[:1]
    pairs = in_pairs and target.registers[:1] == first
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
        return count * sum(wavefronts(address, width))

    return of(given) + of(target)
