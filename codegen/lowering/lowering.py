"""What every back end does first: cheaper operators, types, which tensors hold base-2 shifts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.codegen.lowering.base_two_shifts import shift_tensors, stored_in_base_two
from mirage_py.codegen.lowering.half_range import within_half_range
from mirage_py.codegen.lowering.hidden_constants import with_hidden_constants
from mirage_py.codegen.lowering.log_sums import with_shifts_first
from mirage_py.codegen.lowering.precision import TypedBlock, insert_casts
from mirage_py.codegen.lowering.scales import with_late_scales
from mirage_py.codegen.lowering.strength import reduce_strength
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph


@dataclass(frozen=True, slots=True)
class Lowered:
    """Typed block graphs, and the tensors between them that hold shifts in base 2."""

    blocks: tuple[TypedBlock, ...]
    in_base_two: frozenset[str]


def lowered(ugraph: UGraph, blocks: Sequence[BlockGraph]) -> Lowered:
    """The block graphs of a µGraph, given in order, as back ends emit them."""
    between = _between_blocks(ugraph)
    hidden = with_hidden_constants(blocks, ugraph.tensors, between)
    stored = shift_tensors(blocks, between)
    cheaper = [
        within_half_range(ugraph.program, reduce_strength(b), ugraph.tensors)
        for b in (with_shifts_first(with_late_scales(b), stored) for b in hidden)
    ]
    typed = tuple(insert_casts(ugraph.program, b, ugraph.tensors) for b in cheaper)
    return Lowered(typed, stored_in_base_two(typed, between))


def _between_blocks(ugraph: UGraph) -> list[str]:
    """Intermediates that no library call sees."""
    calls = [k for k in ugraph.kernels if isinstance(k, LibraryCall)]
    seen = {name for call in calls for name in (*call.args, call.result)}
    return [t.name for t in ugraph.intermediates if t.name not in seen]
