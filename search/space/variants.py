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
from mirage_py.ugraph.rewrite.split_dim import part_dim, split_dim

# A shorter dimension is not worth a second kernel.
MIN_SPLIT_EXTENT = 64
_NOMINAL_PARTS = 8


@dataclass(frozen=True, slots=True)
class Variant:
    """``split`` is the dimension that ``program`` has in two halves, or None."""

    program: Program
    split: str | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The outer halves of split dimensions."""
        return (part_dim(self.split),) if self.split else ()

    def __str__(self) -> str:
        return f"split {self.split}" if self.split else "whole"


def nominal_parts(size: int) -> int | None:
    """The number of parts that a dimension is searched with, None if it is not worth a split."""
    if size < MIN_SPLIT_EXTENT:
        return None
    for parts in range(_NOMINAL_PARTS, 1, -1):
        if size % parts == 0:
            return parts
    return None


def variants(program: Program) -> Iterator[Variant]:
    """The program itself, then each dimension it reduces split where that is possible."""
    yield Variant(program)
    if any(operator(n.op).kind in (STATE, EFFECT) for n in program.nodes):
        return  # no program: saying so is left to whoever looks at its terms
    for dim in reduced_dims(program):
        parts = nominal_parts(program.sizes[dim])
        outer = part_dim(dim)
        if parts and outer not in program.sizes and outer not in program.tensors:
            yield Variant(split_dim(program, dim, parts), dim)
