"""The cluster exchanges of a block graph, as the rest of the emitter sees them.

An exchange is a section of its own in which the dimensions of the cluster are unsplit. What the
blocks send lies in the shared memory of each receiver, as a load of a made-up tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.tiling.padding import Padding
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph


@dataclass(frozen=True)
class ClusterTiling(Tiling):
    """Extents with those of the sections in which blocks meet: the cluster's dimensions are whole
    there, and of others a block may have a slice.
    """

    exchanges: tuple[int, ...] = ()
    # After a cluster barrier: {dimension: (its extent, that of the tile which has the slices)}; no
    # tile where positions count blocks, and all of them are inside.
    extents: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def has_tail(self, dim: str, section: int) -> bool:
        """Whether some slice reaches past the dimension's end, or lies past it."""
        if section in self.exchanges and dim in self.extents:
            whole = self.extents[dim][1]
            return whole > 0 and self.program.sizes[dim] % whole != 0
        return super().has_tail(dim, section)

    def _pad(self, dim: str, section: int) -> int:
        if section in self.exchanges and dim in self.extents:
            return self.extents[dim][0]
        return super()._pad(dim, section)


class ClusterPadding(Padding):
    """What arrives has in its padding what was sent."""

    def __init__(self, tiling: Tiling, block: BlockGraph, sources: Mapping[int, int]) -> None:
        super().__init__(tiling, block)
        self.sources = sources

    def _is_zero(self, number: int, dim: str) -> bool:
        if number not in self.sources:
            return super()._is_zero(number, dim)
        return dim not in self.block.cluster_dims and self.is_zero(self.sources[number], dim)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """``typed`` has cluster barriers as sections; ``sources`` gives for each load that arrives the
    node whose value is sent, ``tensors`` the made-up tensors of these loads, ``in_base_two`` those
    among them that hold shifts in base 2.

    ``slices`` says into how many slices dimensions are cut, the first fastest in a block's number
    among ``blocks``; every block gets the slice that it owns. None: every block gets all.
    ``first`` is the dimension that lies contiguously where it arrives.
    """

    typed: TypedBlock
    tiling: ClusterTiling
    tensors: Mapping[str, Tensor]
    sources: Mapping[int, int]
    in_base_two: frozenset[str]
    slices: tuple[tuple[str, int], ...] | None
    first: str
    blocks: int

    @property
    def exchanges(self) -> tuple[int, ...]:
        """The sections in which blocks meet."""
        return self.tiling.exchanges

    def inner(self, parts: Sequence[str], others: Sequence[str]) -> str:
        """The dimension along which what arrives lies contiguously: that of the stores; what the
        blocks have of one element, where there are few elements.
        """
        if self.slices is None or (self.first not in others and len(others) < 2):
            return parts[-1]
        return self.first if self.first in others else others[-1]

    @property
    def sharers(self) -> int:
        """Blocks that go on after a cluster barrier."""
        return self.blocks if self.slices is None else prod(n for _, n in self.slices)
