"""Variants of a program to search: the program itself, and with one reduced dimension split.

In a split variant each block reduces its own split of a dimension, and a second kernel, or an
atomic addition, combines the partial results (split-K, split-KV). The number of splits is nominal
here; it is chosen with the tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mirage_py.search.space.abstraction import reduced_dims
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import EFFECT, STATE, operator
from mirage_py.ugraph.rewrite.split_dim import outer_dim, split_dim

# A shorter dimension is not worth a second kernel.
MIN_SPLIT_EXTENT = 64
_NOMINAL_SPLITS = 8


@dataclass(frozen=True, slots=True)
class Variant:
    """``split`` is the dimension that ``program`` has in two halves, or None."""

    program: Program
    split: str | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The outer halves of split dimensions."""
        return (outer_dim(self.split),) if self.split else ()

    def __str__(self) -> str:
        return f"split {self.split}" if self.split else "whole"


def nominal_splits(size: int) -> int | None:
    """The number of splits that a dimension is searched with; None if no split is worth it."""
    if size < MIN_SPLIT_EXTENT:
        return None
    for splits in range(_NOMINAL_SPLITS, 1, -1):
        if size % splits == 0:
            return splits
    return None


def variants(program: Program) -> Iterator[Variant]:
    """The program itself, then each dimension it reduces split where that is possible."""
    yield Variant(program)
    if any(operator(n.op).kind in (STATE, EFFECT) for n in program.nodes):
        return  # no program: saying so is left to whoever looks at its terms
    for dim in reduced_dims(program):
        splits = nominal_splits(program.sizes[dim])
        outer = outer_dim(dim)
        if splits and outer not in program.sizes and outer not in program.tensors:
            yield Variant(split_dim(program, dim, splits), dim)
