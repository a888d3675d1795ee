"""The lowering shared by all back ends: cheaper operators, element types, tensors with base-2
shifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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


def with_factors_as_emitted(ugraph: UGraph) -> UGraph:
    """The µGraph with constant factors of logits where both back ends have them.

    A query that is divided before its product is not rounded to half precision there.
    """
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    moved = iter(_with_late_factors(ugraph, blocks))
    kernels = tuple(next(moved) if isinstance(k, BlockGraph) else k for k in ugraph.kernels)
    return replace(ugraph, kernels=kernels)


def lowered(ugraph: UGraph, blocks: Sequence[BlockGraph]) -> Lowered:
    """The block graphs of a µGraph, given in order, as back ends emit them."""
    between = _between_blocks(ugraph)
    stored = shift_tensors(blocks, between)
    cheaper = [
        within_half_range(ugraph.program, reduce_strength(b), ugraph.tensors)
        for b in (with_shifts_first(b, stored) for b in _with_late_factors(ugraph, blocks))
    ]
    typed = tuple(insert_casts(ugraph.program, b, ugraph.tensors) for b in cheaper)
    return Lowered(typed, stored_in_base_two(typed, between))


def _with_late_factors(ugraph: UGraph, blocks: Sequence[BlockGraph]) -> list[BlockGraph]:
    hidden = with_hidden_constants(blocks, ugraph.tensors, _between_blocks(ugraph))
    return [with_late_scales(b) for b in hidden]


def _between_blocks(ugraph: UGraph) -> list[str]:
    """Intermediates that no library call sees."""
    calls = [k for k in ugraph.kernels if isinstance(k, LibraryCall)]
    seen = {name for call in calls for name in (*call.args, call.result)}
    return [t.name for t in ugraph.intermediates if t.name not in seen]
