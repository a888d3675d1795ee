"""Combination of the choices for single kernels into choices for a whole µGraph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

from mirage_py.search.rank.kernel_choices import KernelChoice

# Kernels depend on one another little: all pairs are tried of the best few only.
_PAIRED = 3
_LEAST = 3


@dataclass(frozen=True, slots=True)
class Combination:
    """One choice for every kernel; the time is the sum, each kernel with its launch."""

    choices: tuple[KernelChoice, ...]

    @property
    def time_us(self) -> float:
        """The prediction for the whole plan."""
        return sum(c.estimate.time_us for c in self.choices)


def combinations_of(ranked: Sequence[Sequence[KernelChoice]], limit: int) -> list[Combination]:
    """The ``limit`` best of: every kernel at its best but one, and the best few of two kernels.

    ``ranked`` has for each kernel its choices, best first, at least one. A kernel gets as many
    variants as its share of the time is worth.
    """
    if len(ranked) == 1:
        return [Combination((choice,)) for choice in ranked[0][:limit]]
    best_us = sum(r[0].estimate.time_us for r in ranked)
    kept = [r[: max(_LEAST, ceil(limit * r[0].estimate.time_us / best_us))] for r in ranked]
    # Of plans with equal predictions those come first that vary the kernel that takes longest.
    longest_first = sorted(range(len(ranked)), key=lambda k: -ranked[k][0].estimate.time_us)
    picks = dict.fromkeys(_picks([len(k) for k in kept], longest_first))
    found = [Combination(tuple(k[n] for k, n in zip(kept, pick, strict=True))) for pick in picks]
    found.sort(key=lambda c: c.time_us)
    return found[:limit]


def _picks(counts: Sequence[int], order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Positions among the choices of each kernel; kernels are varied in this order."""

    def pick(changed: dict[int, int]) -> tuple[int, ...]:
        return tuple(changed.get(k, 0) for k in range(len(counts)))

    for kernel in order:
        for n in range(counts[kernel]):
            yield pick({kernel: n})
    for one, other in combinations(range(len(counts)), 2):
        for n in range(1, min(_PAIRED, counts[one])):
            for m in range(1, min(_PAIRED, counts[other])):
                yield pick({one: n, other: m})
