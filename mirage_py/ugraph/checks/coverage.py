"""The check that stores write every element of a tensor exactly once.

For a ``store_add`` that is: once in every block along the grid axes that its indices lack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.ir.index import IndexExpr

# Up to this many elements, what the structure of the indices leaves open is settled by counting.
COUNTED_ELEMENTS = 1 << 20


_Index = tuple[IndexExpr, ...]


def coverage_fault(
    stores: Sequence[_Index], shape: tuple[int, ...], sizes: Mapping[str, int]
) -> str | None:
    """What is wrong with the stores to a tensor of this shape, or None.

    Indices are known to stay inside the tensor. Where they are neither mixed-radix numbers nor few
    enough to be counted, only the number of writes is compared.
    """
    total = prod(shape)
    writes = sum(prod(sizes[d] for d in _dims(index)) for index in stores)
    if writes != total:
        return f"{writes} writes to {total} elements"
    if len(stores) == 1 and is_mixed_radix(stores[0], sizes):
        return None
    if total > COUNTED_ELEMENTS:
        return None
    hits = np.zeros(shape, dtype=np.int64)
    for index in stores:
        np.add.at(hits, _elements(index, sizes), 1)
    doubles = int((hits > 1).sum())
    return f"{doubles} elements are written more than once" if doubles else None


def _dims(index: _Index) -> tuple[str, ...]:
    """The dimensions whose points a store writes."""
    return tuple(dict.fromkeys(d for e in index for d in e.dims()))


def _elements(index: _Index, sizes: Mapping[str, int]) -> tuple[NDArray[np.int64], ...]:
    dims = _dims(index)
    grids = np.meshgrid(*(np.arange(sizes[d]) for d in dims), indexing="ij")
    env = dict(zip(dims, grids, strict=True))
    shape = tuple(sizes[d] for d in dims)
    return tuple(np.broadcast_to(e.evaluate(env), shape) for e in index)


def is_mixed_radix(index: _Index, sizes: Mapping[str, int]) -> bool:
    """Whether every axis is a sum of multiples of its own dimensions that never collide."""
    terms = [_linear_terms(e) for e in index]
    if any(axis is None for axis in terms):
        return False
    flat = [d for axis in terms for d, _ in axis or ()]
    if len(flat) != len(_dims(index)):
        return False
    for axis in terms:
        reach = 1
        for d, factor in sorted(axis or (), key=lambda term: term[1]):
            if factor < reach:
                return False
            reach += factor * (sizes[d] - 1)
    return True


def _linear_terms(expr: IndexExpr) -> list[tuple[str, int]] | None:
    if expr.op == "const":
        return []
    if expr.is_dim:
        return [(expr.name, 1)]
    if expr.op == "mul" and expr.args[0].is_dim:
        return [(expr.args[0].name, expr.value)]
    if expr.op == "add":
        left, right = (_linear_terms(a) for a in expr.args)
        return None if left is None or right is None else left + right
    return None
