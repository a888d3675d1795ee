"""Shape policies: one kernel for one size, for a bucket of sizes, or for all.

A ``static`` kernel serves one size, a ``bucketed`` one each of a bucket of sizes, for whose upper
edge it was tuned, and a ``symbolic`` one all that its tiles allow. All are exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.arguments import shown
from mirage_py.errors import InputError

STATIC, BUCKETED, SYMBOLIC = "static", "bucketed", "symbolic"
POLICIES = (STATIC, BUCKETED, SYMBOLIC)

# Up to here an edge is twice the one before it.
_DOUBLES_TO = 512
# A dimension of more points is no dimension of one kernel's tensors: offsets have 31 bits.
LARGEST_SIZE = 1 << 24
# What kernels of invariant rows are tuned for where no edge says: whatever size comes first, they
# are the same.
_USUAL_ROWS = 16


@dataclass(frozen=True, slots=True)
class ShapePolicy:
    """``edges`` are the upper ends of buckets, rising; without any they are 1, 2, 4 ... 512, then
    every 512 up to 4096, then four to each doubling. With ``invariant`` one kernel serves all
    sizes, 1 among them, and is tuned for the last edge, whatever sizes are met.
    """

    kind: str = BUCKETED
    edges: tuple[int, ...] = ()
    invariant: bool = False

    def __post_init__(self) -> None:
        if self.kind not in POLICIES:
            raise InputError(
                f"unknown shape policy {shown(self.kind)}",
                repair=f"use one of {', '.join(POLICIES)}",
            )
        if any(type(edge) is not int for edge in self.edges):
            raise InputError(
                f"bucket edges {shown(list(self.edges))} are no whole numbers",
                repair="pass the upper ends of buckets, as in edges=(64, 256)",
            )
        rising = all(a < b for a, b in zip((0, *self.edges), self.edges, strict=False))
        if not rising:
            raise InputError(
                f"bucket edges {shown(list(self.edges))} do not rise from 1",
                repair="give each upper end once, in rising order",
            )
        if self.edges and self.edges[-1] > LARGEST_SIZE:
            raise InputError(
                f"bucket edge {shown(self.edges[-1])} is too large",
                repair=f"end at {LARGEST_SIZE} at most",
            )

    def bucket(self, size: int) -> tuple[int, int]:
        """The smallest and the largest size of the bucket of ``size``.

        Behind the last edge that was given the rule goes on with the edges that there are without.
        """
        if self.invariant:
            return 1, LARGEST_SIZE
        if self.kind == STATIC or size <= 1:
            return size, size
        if self.kind == SYMBOLIC:
            return 2, LARGEST_SIZE
        low, high = (_given(self.edges, size) if self.edges else None) or _edges_around(size)
        if self.edges and size > self.edges[-1]:
            low = max(low, self.edges[-1])
        # A size of 1 has a program of its own, without the dimension.
        return max(low + 1, 2), high

    def tuned(self, size: int) -> int:
        """The size that the kernel of ``size`` is tuned for."""
        if self.invariant:
            return self.edges[-1] if self.edges else _USUAL_ROWS
        return size if self.kind == SYMBOLIC else self.bucket(size)[1]


def _given(edges: Sequence[int], size: int) -> tuple[int, int] | None:
    place = bisect_left(edges, size)
    return ((0, *edges)[place], edges[place]) if place < len(edges) else None


def _edges_around(size: int) -> tuple[int, int]:
    """The edges below (exclusive) and above (inclusive) a size."""
    octave = 1 << (size - 1).bit_length() >> 1  # the largest power of two below size
    if octave < _DOUBLES_TO:
        return octave, 2 * octave
    step = max(_DOUBLES_TO, octave // 4)
    high = octave + -(-(size - octave) // step) * step
    return high - step, high
