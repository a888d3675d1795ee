"""Base-2 shifts that blocks of a cluster exchange, where sender and receiver support them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mirage_py.codegen.lowering.base_two_shifts import BaseTwoShifts, is_shift
from mirage_py.codegen.lowering.precision import TypedBlock


def in_base_two(typed: TypedBlock, sources: Mapping[int, int]) -> frozenset[str]:
    """Which of the tensors of what arrives hold shifts in base 2: the senders have them so, and
    the readers take them so.
    """
    block = typed.block
    loads = {block.nodes[n].access.tensor: (n, s) for n, s in sources.items()}
    chosen: Collection[str] = {t for t, (_, s) in loads.items() if is_shift(block.nodes[s])}
    while chosen:
        found = BaseTwoShifts(block, typed.dtypes, chosen)
        kept = {t for t in chosen if found.agrees(t) and loads[t][1] in found.shifts}
        if kept == chosen:
            break
        chosen = kept
    return frozenset(chosen)
