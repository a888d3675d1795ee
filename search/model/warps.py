"""Partitioning of a matmul among the warps of a block, as Triton does it with mma.sync.

By default a matmul is halved along the side with more instruction tiles left per warp (Triton 3.6,
``warpsPerTileV2``). Matmuls of one section that share operands get the same warps: along the rows
or along the columns, whichever the last of them in the text has more of. The emitter puts the one
with the longest sides last.
"""

from __future__ import annotations

from collections.abc import Sequence

_ROWS = 16
_COLUMNS = 8


def plain_warps(rows: int, columns: int, num_warps: int) -> tuple[int, int]:
    """Warps along rows and columns of a single matmul."""
    down = across = 1
    left_down, left_across = max(1, rows // _ROWS), max(1, columns // _COLUMNS)
    while down * across < num_warps:
        if left_down >= left_across:
            down *= 2
            # With too many warps some do the same.
            left_down = max(1, left_down // 2)
        else:
            across *= 2
            left_across //= 2
    return down, across


def joined_warps(sides: Sequence[tuple[int, int]], num_warps: int) -> list[tuple[int, int]]:
    """Warps of the matmuls of a section, by their rows and columns."""
    if not sides:
        return []
    if len(set(sides)) > 1:
        rows, columns = max(sides, key=lambda side: (min(side), max(side)))
        shared = (num_warps, 1) if rows >= columns else (1, num_warps)
        return [shared for _ in sides]
    return [plain_warps(rows, columns, num_warps) for rows, columns in sides]


def warp_tile(rows: int, columns: int, warps: tuple[int, int]) -> tuple[float, float]:
    """What one warp computes: never less than an instruction, so warps may do the same."""
    return max(_ROWS, rows / warps[0]), max(_COLUMNS, columns / warps[1])
