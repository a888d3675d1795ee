"""Values that kernels keep as the integers that they are in memory, of any size.

Everything is computed in float32, but for what only reads integers of 32 and 64 bits and chooses
among them: these are compared and stored as integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.ugraph.ir.dtypes import I32, I64, DType
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Tensor

WIDE = (I32, I64)


def kept_types(nodes: Sequence[Node], tensors: Mapping[str, Tensor]) -> tuple[DType | None, ...]:
    """For each node the type of integers that it is kept in; None for a float or a truth value."""
    found: list[DType | None] = []
    for node in nodes:
        tensor = tensors.get(node.access.tensor) if node.op == "load" else None
        found.append(tensor.dtype if tensor is not None and tensor.dtype in WIDE else None)
    return tuple(found)


def wider(one: DType, other: DType) -> DType:
    """The type that holds the integers of both."""
    return I64 if I64 in (one, other) else I32
