"""The layout of a tile in shared memory, as tensor cores and TMA read and write it.

Rows along the contiguous dimension, cut into panels of at most 128 bytes. Within a panel the index
of each 16-byte piece of a row is XORed with bits of the row's index: the swizzle of 128, 64 or 32
bytes of sm_90's TMA. So eight rows of one column of pieces lie in different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mirage_py.codegen.cuda.text.c_text import added
from mirage_py.codegen.cuda.text.layout import Bit, Layout
from mirage_py.codegen.cuda.text.linear_text import register_part, thread_part

# Gives a name to a constant of the thread: stem, text -> name.
Interned = Callable[[str, str], str]

PANEL_BYTES = 128
PIECE_BYTES = 16
TILE_ALIGNMENT_BYTES = 1024
# Rows flip the lowest bit first, so that neighbouring panels and rows differ.
_PANEL_FLIPS = (1, 0, 2)


@dataclass(frozen=True, slots=True)
class SharedTile:
    """``columns`` are the bits of the contiguous dimension, ``rows`` those of all others, the
    lowest first; ``element_bytes`` of each element. ``panels_flip``: the number of a panel flips
    bits of a piece's number, too, which TMA and tensor cores do not know.
    """

    columns: tuple[Bit, ...]
    rows: tuple[Bit, ...]
    element_bytes: int
    panels_flip: bool = False

    @property
    def dim(self) -> str:
        """The contiguous dimension."""
        return self.columns[0][0]

    @property
    def bits(self) -> tuple[Bit, ...]:
        """All bits, those of neighbours lowest."""
        return (*self.columns, *self.rows)

    @property
    def size_bytes(self) -> int:
        """Bytes of one tile."""
        return self.element_bytes << len(self.bits)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in its panel."""
        return min(PANEL_BYTES, self.element_bytes << len(self.columns))

    @property
    def swizzle_bytes(self) -> int:
        """128, 64 or 32; 0 for tiles that have too few rows to need it."""
        enough = len(self.rows) >= 3 and self.row_bytes >= 2 * PIECE_BYTES
        return self.row_bytes if enough else 0

    def places(self) -> dict[Bit, int]:
        """Bits of the byte's offset that bits of a position become, before the swizzle."""
        own = self.element_bytes.bit_length() - 1
        wide = self.row_bytes.bit_length() - 1
        inside = wide - own
        places = {bit: own + n for n, bit in enumerate(self.columns[:inside])}
        places |= {bit: wide + n for n, bit in enumerate(self.rows)}
        above = wide + len(self.rows)
        places |= {bit: above + n for n, bit in enumerate(self.columns[inside:])}
        return places

    def swizzle_places(self) -> dict[Bit, int]:
        """Bits of the row's number, and the bits of a piece's number that they flip."""
        if not self.swizzle_bytes:
            return {}
        pieces = self.swizzle_bytes // PIECE_BYTES
        count = pieces.bit_length() - 1
        # The pattern repeats after 8 lines of 128 bytes; narrow rows share a line.
        first = (PANEL_BYTES // self.swizzle_bytes).bit_length() - 1
        return {bit: n for n, bit in enumerate(self.rows[first : first + count])}

    def panel_places(self) -> dict[Bit, int]:
        """Bits of the panel's number, and the bits of a piece's number that they flip."""
        if not self.panels_flip or self.swizzle_bytes != PANEL_BYTES:
            return {}
        panels = self.columns[(PANEL_BYTES // self.element_bytes).bit_length() - 1 :]
        return dict(zip(panels, _PANEL_FLIPS, strict=False))

    def offset(self, layouts: Mapping[str, Layout], interned: Interned) -> tuple[str, str, str]:
        """Three C texts whose sum is a byte's offset: what the thread adds, what registers add,
        and the swizzled piece of 16 bytes.

        ``layouts`` are given by the variables that count their registers; the thread's part follows
        from the first. ``interned`` names a constant of the thread.
        """
        first = next(iter(layouts.values()))
        swizzles = [self.swizzle_places(), self.panel_places()]
        low = PIECE_BYTES.bit_length() - 1
        high = low + (self.swizzle_bytes // PIECE_BYTES or 1).bit_length() - 1
        places = self.places()
        pieces = {b: p - low for b, p in places.items() if low <= p < high}
        others = {b: p for b, p in places.items() if not low <= p < high}

        def registers(chosen: Mapping[Bit, int]) -> list[str]:
            return [register_part(layout, chosen, v) for v, layout in layouts.items()]

        thread = interned("tile_at", thread_part(first, others))
        mixed = [thread_part(first, bits) for bits in (pieces, *swizzles)]
        own = interned("piece_at", " ^ ".join(_grouped(t) for t in mixed if t != "0") or "0")
        terms = [own, *(part for bits in (pieces, *swizzles) for part in registers(bits))]
        piece = " ^ ".join(_grouped(t) for t in terms if t != "0")
        text = f"(({piece}) << {low})" if " " in piece else f"({piece} << {low})"
        return thread, added(*registers(others)), text if piece else "0"


def _grouped(text: str) -> str:
    return f"({text})" if " + " in text else text
