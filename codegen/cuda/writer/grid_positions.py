"""The position of a block in the grid: its index along each dimension, and its first positions."""

from __future__ import annotations

from collections.abc import Collection

from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.tiling.block_order import block_numbers
from mirage_py.ugraph.ir.launch_choices import BlockOrder


def grid_positions(
    out: Emission, uneven: Collection[str], place: str = "(int)blockIdx.x", is_ordered: bool = False
) -> None:
    """Names for the block's number and first position along each dimension of the grid. Blocks that
    differ along an ``uneven`` dimension have loops of different lengths. ``place`` is the number
    of the block, or of one of its many work tiles, in the order that the options ask for if it
    ``is_ordered``.
    """
    kind = out.index_type
    order = None if is_ordered else out.options.block_order
    for dim, number in _block_numbers(out, uneven, order).items():
        tile = out.facts.tiling.padded(dim, 0)
        text = number.replace("//", "/").replace("pid", place)
        name = out.fresh(f"{dim}_block")
        out.line(f"const int {name} = {text};")
        out.block_names[dim] = name
        start = dim if tile == 1 else out.fresh(f"{dim}_start")
        scaled = name if tile == 1 else f"{name} * {tile}"
        if kind != "int":
            scaled = f"({kind}){scaled}"
        out.line(f"const {kind} {start} = {scaled};")
        out.starts[dim] = start


def _block_numbers(
    out: Emission, uneven: Collection[str], order: BlockOrder | None
) -> dict[str, str]:
    """Blocks of a cluster are neighbours; clusters have the order that is asked for."""
    tiling = out.facts.tiling
    if out.facts.cut is None:
        return block_numbers(tiling.axes, order, uneven)
    inner = tiling.cluster_axes
    outer = tuple(axis for axis in tiling.axes if axis not in inner)
    found = block_numbers((*inner, *outer), None, uneven)
    of_clusters = block_numbers(outer, order, uneven)
    cluster = f"(pid // {tiling.cluster_blocks})"
    found |= {d: text.replace("pid", cluster) for d, text in of_clusters.items()}
    return found


def unsplit_positions(out: Emission, section: int) -> None:
    """Dimensions of which this section sees all."""
    loop = out.facts.block.sections[section].loop
    for dim in out.facts.program.dim_names:
        if dim not in out.block_names and dim != loop:
            out.starts[dim] = "0"
