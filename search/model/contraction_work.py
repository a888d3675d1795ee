"""The number of multiplications in a program's matmuls, without those that a mask removes."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.program import Program

# Points of a mask that are looked at together.
_CHUNK = 1 << 22


def contraction_flops(program: Program) -> float:
    """Two for each multiplication and addition of the contractions.

    Where a mask depends on a contraction's dimensions alone, only the points where it holds count:
    of the others nothing has to be known. That makes it a lower bound, whatever the mask is for.
    """
    masks = [n.attr for n in program.nodes if isinstance(n.attr, Predicate)]
    flops = 0.0
    for node in program.nodes:
        if node.op == "matmul":
            dims = (*node.dims, *node.reduced)
            own = (m for m in masks if set(m.dims()) <= set(dims))
            share = min((share_of(m, _extents(program, m)) for m in own), default=1.0)
            flops += 2.0 * share * prod(program.sizes[d] for d in dims)
    return flops


@lru_cache(maxsize=64)
def share_of(mask: Predicate, extents: tuple[int, ...]) -> float:
    """The share of points where a mask holds; ``extents`` are those of its dimensions in order."""
    if not extents:
        return float(bool(mask.evaluate({})))
    first, *others = mask.dims()
    axes = np.ogrid[tuple(slice(0, e) for e in extents[1:])] if others else []
    rows = max(1, _CHUNK // prod(extents[1:]))
    held = 0
    for start in range(0, extents[0], rows):
        stop = min(start + rows, extents[0])
        shape = (stop - start, *extents[1:])
        along = np.arange(start, stop).reshape(-1, *(1 for _ in others))
        env = {first: along} | dict(zip(others, axes, strict=True))
        held += int(np.broadcast_to(mask.evaluate(env), shape).sum())
    return held / prod(extents)


def _extents(program: Program, mask: Predicate) -> tuple[int, ...]:
    return tuple(program.sizes[d] for d in mask.dims())
