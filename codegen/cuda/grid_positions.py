"""Where a block lies in the grid: its number along each dimension, and its first positions."""

from __future__ import annotations

from collections.abc import Collection

from mirage_py.codegen.cuda.c_text import identifier
from mirage_py.codegen.cuda.emission import Emission
from mirage_py.codegen.triton.block_order import ORDER, block_numbers, longest_first


def grid_positions(out: Emission, uneven: Collection[str], place: str = "") -> None:
    """Names for the block's number and first position along each dimension of the grid. Blocks that
    differ along an ``uneven`` dimension have loops of different lengths. ``place`` is the number
    of one of many places that a block takes; empty: a block has one.
    """
    kind = out.index_type
    for dim, number in _block_numbers(out, uneven, is_dealt=bool(place)).items():
        tile = out.facts.tiling.padded(dim, 0)
        text = number.replace("//", "/").replace("pid", place or "(int)blockIdx.x")
        name = out.fresh(f"{identifier(dim)}_block")
        out.line(f"const int {name} = {text};")
        out.block_names[dim] = name
        start = identifier(dim) if tile == 1 else out.fresh(f"{identifier(dim)}_start")
        scaled = name if tile == 1 else f"{name} * {tile}"
        if kind != "int":
            scaled = f"({kind}){scaled}"
        out.line(f"const {kind} {start} = {scaled};")
        out.starts[dim] = start


def _block_numbers(out: Emission, uneven: Collection[str], is_dealt: bool) -> dict[str, str]:
    """Blocks of a cluster are neighbours; clusters have the order that is asked for. Places that
    are dealt out have less work from first to last.
    """
    tiling = out.facts.tiling
    order = out.options.flag(ORDER)
    if is_dealt and uneven:
        return longest_first(tiling.axes, uneven)
    if out.facts.cut is None:
        return block_numbers(tiling.axes, order, uneven)
    inner = tiling.cluster_axes
    outer = tuple(axis for axis in tiling.axes if axis not in inner)
    found = block_numbers((*inner, *outer), "", uneven)
    of_clusters = block_numbers(outer, order, uneven)
    cluster = f"(pid // {tiling.cluster_blocks})"
    found |= {d: text.replace("pid", cluster) for d, text in of_clusters.items()}
    return found


def whole_positions(out: Emission, section: int) -> None:
    """Dimensions of which this section sees all."""
    loop = out.facts.block.sections[section].loop
    for dim in out.facts.program.dim_names:
        if dim not in out.block_names and dim != loop:
            out.starts[dim] = "0"
