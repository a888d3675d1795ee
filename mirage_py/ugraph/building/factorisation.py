"""Common refinement of two factorisations of the same number (major factor first)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod


def segments(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Cut two factorisations of one number at their common boundaries.

    All factors exceed 1. Each segment names the positions of the old and of the new factors in it.
    """
    out: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old):
        olds, news = [i], [j]
        left, right = old[i], new[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left *= old[i]
                olds.append(i)
                i += 1
            else:
                right *= new[j]
                news.append(j)
                j += 1
        out.append((olds, news))
    return out


def refinement(left: Sequence[int], right: Sequence[int]) -> list[int] | None:
    """The coarsest factorisation that refines both (major to minor), or None if there is none."""
    cuts = sorted({*_strides(left), *_strides(right)}, reverse=True)
    if any(outer % inner for outer, inner in pairwise(cuts)):
        return None
    return [outer // inner for outer, inner in pairwise(cuts)]


def _strides(sizes: Sequence[int]) -> list[int]:
    """Products of the last 0, 1, 2 ... sizes."""
    return [prod(sizes[len(sizes) - n :]) for n in range(len(sizes) + 1)]


def grouped(pieces: Sequence[int], extents: Sequence[int]) -> list[list[int]]:
    """Consecutive pieces whose products are the extents."""
    out: list[list[int]] = []
    rest = iter(pieces)
    for extent in extents:
        group = [next(rest)]
        while prod(group) != extent:
            group.append(next(rest))
        out.append(group)
    return out
