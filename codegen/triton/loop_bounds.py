"""The bounds of a loop, as Triton text."""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.tiling.mask_bounds import Bound
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.tiling.unmasked_tiles import UnmaskedRange


def low_name(var: str) -> str:
    """The variable that holds a block's first position along a dimension."""
    return f"{var}_low"


def loop_bounds(
    tiling: Tiling, section: int, found: UnmaskedRange, dim_var: Mapping[str, str], size: str = ""
) -> tuple[str, str]:
    """The first position of a section's loop, a multiple of its tile, and the one it stops before.

    ``size`` is the text of the size of the loop's dimension, by default a number.

    Division rounds towards zero in Triton: where that differs from rounding down, the bound is
    negative and 0 counts instead.
    """
    loop = tiling.block.sections[section].loop
    assert loop is not None
    tile = tiling.padded(loop, section)
    first, stop = "0", size or str(tiling.program.sizes[loop])
    for bound in found.firsts:
        first = f"tl.maximum({_text(bound, tiling, dim_var)}, {first})"
    for bound in found.stops:
        stop = f"tl.minimum({_text(bound, tiling, dim_var)}, {stop})"
    return f"{first} // {tile} * {tile}" if found.firsts and tile > 1 else first, stop


def _text(bound: Bound, tiling: Tiling, dim_var: Mapping[str, str]) -> str:
    offset = bound.offset
    parts = []
    for dim, scale, end in bound.terms:
        tile = tiling.padded(dim, 0)
        offset += scale * (tile - 1) * end
        if dim in tiling.divided:
            name = dim_var[dim] if tile == 1 else low_name(dim_var[dim])
            parts.append(name if scale == 1 else f"{scale} * {name}")
    text = " + ".join(parts) or str(offset)
    if parts and offset:
        text += f" + {offset}" if offset > 0 else f" - {-offset}"
    return text if bound.divisor == 1 else f"({text}) // {bound.divisor}"
