"""The proof tier of verification: do the laws join two terms?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.axioms.law import RINGS
from mirage_py.axioms.saturate import MAX_NODES, ROUNDS, Saturation
from mirage_py.axioms.term import Term


def joins(
    a: Term,
    b: Term,
    leaf_axes: Mapping[str, tuple[str, ...]],
    *,
    axes: Sequence[str],
    rounds: int = ROUNDS,
    max_nodes: int = MAX_NODES,
) -> bool:
    """True if the laws prove a = b for all values and all sizes; False says only that they did not.

    Both terms saturate in one e-graph, ring after ring, until they are in one class, the laws have
    nothing to add, or a bound is hit. Arguments and errors are those of ``saturate``.
    """
    for ring in RINGS:
        saturation = Saturation((a, b), leaf_axes, axes=axes, ring=ring)
        while True:
            if saturation.equal(a, b):
                return True
            if saturation.rounds >= rounds or saturation.nodes() > max_nodes:
                break
            if not saturation.step(max_nodes):
                break
    return False
