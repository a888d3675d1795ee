"""Places at which a node reads its operands: where they are made, in few parts, or elsewhere."""

from __future__ import annotations

from enum import IntEnum
from itertools import accumulate
from math import gcd
from typing import Any

from torch.fx import Node

from mirage_py.dynamo.regions.nodes import (
    base_name,
    cuts_at_size,
    extent,
    looks_up,
    shape_of,
    tensors_of,
)

_MOVING = ("repeat", "slice_backward", "select_backward", "constant_pad_nd", "flip", "roll")
_CUTTING = ("slice", "select", "split", "split_with_sizes", "chunk", "unbind", "narrow")
_JOINING = ("cat", "stack")
# The columns of a product are computed for each part on its own.
_FEW_PARTS = 8


class Place(IntEnum):
    """Where a value is read. In ``PARTS``: an axis is cut, or joined, at the ends of few equal
    parts of it, as the halves of rotary positions are.
    """

    SAME = 0
    PARTS = 1
    OTHER = 2


def place_of_reads(node: Node) -> Place:
    """Where a node reads its operands."""
    name = base_name(node)
    if looks_up(node) or name in _MOVING or cuts_at_size(node):
        return Place.OTHER
    if name not in _CUTTING and name not in _JOINING:
        return Place.SAME
    size, *ends = _ends(node)
    return Place.PARTS if size <= _FEW_PARTS * gcd(size, *ends) else Place.OTHER


def _ends(node: Node) -> list[int]:
    """The extent of the axis that a node cuts or joins, and where its pieces end."""
    name, given = base_name(node), _arguments(node)
    axis = given.get("dim") or 0
    if name in _JOINING:
        shapes = [shape_of(tensors_of(n)[0]) for n in given["tensors"]]
        # An empty tensor may have another rank.
        pieces = [1 if name == "stack" else shape[axis] for shape in shapes if 0 not in shape]
        return [sum(pieces), *accumulate(pieces)]
    size = shape_of(tensors_of(node.all_input_nodes[0])[0])[axis]
    if name in ("select", "unbind"):
        return [size, 1]
    if name == "narrow":
        return [size, extent(given["start"]), extent(given["length"])]
    if name == "slice":
        step = given.get("step") or 1
        first, last, _ = slice(given.get("start"), given.get("end"), step).indices(size)
        # Every other one is a part where as many are in between.
        return [size, size // step if size % step == 0 else 1] if step > 1 else [size, first, last]
    return [size, *accumulate(shape_of(t)[axis] for t in tensors_of(node))]


def _arguments(node: Node) -> dict[str, Any]:
    schema: Any = node.target
    names = [a.name for a in schema._schema.arguments]  # noqa: SLF001
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}
