"""The bounds of a loop and the stages of its ring buffers, as C text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.tiling.mask_bounds import Bound
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.tiling.unmasked_tiles import UnmaskedRange


def loop_bounds(
    tiling: Tiling, section: int, found: UnmaskedRange, starts: Mapping[str, str]
) -> tuple[str, str]:
    """The first position of a section's loop, a multiple of its tile, and the one it stops before.

    Division rounds towards zero: where that differs from rounding down, the bound is negative and 0
    counts instead.
    """
    loop = tiling.block.sections[section].loop
    assert loop is not None
    tile = tiling.padded(loop, section)
    first, stop = "0", str(tiling.program.sizes[loop])
    for bound in found.firsts:
        first = f"max({_text(bound, tiling, starts)}, {first})"
    for bound in found.stops:
        stop = f"min({_text(bound, tiling, starts)}, {stop})"
    return f"{first} / {tile} * {tile}" if found.firsts and tile > 1 else first, stop


def unmasked_stop(
    tiling: Tiling, found: Sequence[Bound], stop: str, starts: Mapping[str, str]
) -> str:
    """Where the positions end below which no mask is false, at the latest where the loop does."""
    for bound in found:
        stop = f"min({_text(bound, tiling, starts)}, {stop})"
    return stop


def _text(bound: Bound, tiling: Tiling, starts: Mapping[str, str]) -> str:
    offset = bound.offset
    parts = []
    for dim, scale, end in bound.terms:
        offset += scale * (tiling.padded(dim, 0) - 1) * end
        if tiling.blocks(dim) > 1:
            parts.append(starts[dim] if scale == 1 else f"{scale} * {starts[dim]}")
    text = " + ".join(parts) or str(offset)
    if parts and offset:
        text += f" + {offset}" if offset > 0 else f" - {-offset}"
    return text if bound.divisor == 1 else f"({text}) / {bound.divisor}"


def advance_stage(out: Emission, stage: str, parity: str, depth: int) -> None:
    """Go on to the next of ``depth`` stages; its barriers' parity changes with each round."""
    if depth == 1:
        out.line(f"{parity} ^= 1;")
    else:
        with out.indented(f"if (++{stage} == {depth})"):
            out.line(f"{stage} = 0;")
            out.line(f"{parity} ^= 1;")


def stage_ago(stage: str, count: int, depth: int) -> str:
    """The number of the stage of ``count`` iterations ago, of ``depth`` stages."""
    if depth <= count:
        return stage if depth == count else "0"
    return f"{stage} < {count} ? {stage} + {depth - count} : {stage} - {count}"
