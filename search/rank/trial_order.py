"""The order in which plans are tried: by two predictions, and by structure, in turns.

Within a structure (kernels, splits, clusters: ``Instance.name``) predictions rank well; from one to
another they err by more than the differences. So the first plans are not all of the structure that
is predicted to be the fastest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

# Structures that have a plan among the first ones, and by how much, as a logarithm of the time, the
# best of one may be behind the best of all.
_LEADERS = 8
_NEAR = 0.5


class _Tried(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def doubt(self) -> str: ...


def in_turns(instances: Sequence[_Tried], scores: ArrayLike, roofline: ArrayLike) -> list[int]:
    """The numbers of all plans in the order in which they are tried, those in doubt last.

    By learned ``scores`` (logarithms of a time), the best of each structure, and by the
    ``roofline``, in turns: a program may be unlike all that was measured.
    """
    doubted = [bool(i.doubt) for i in instances]
    by_score, by_roofline = (
        sorted(map(int, np.argsort(values, kind="stable")), key=lambda n: doubted[n])
        for values in (scores, roofline)
    )
    leaders = _leaders([i.name for i in instances], np.asarray(scores), by_score)
    turns = (iter(by_score), iter(leaders), iter(by_roofline))
    found: dict[int, None] = {}
    while len(found) < len(instances):
        for turn in turns:
            number = next((n for n in turn if n not in found), None)
            if number is not None:
                found[number] = None
    return sorted(found, key=lambda n: doubted[n])


def _leaders(
    structures: Sequence[Hashable], scores: np.ndarray, order: Sequence[int]
) -> Iterator[int]:
    """The best of each structure, in ``order``, of a few that are near the best of all."""
    best = min((scores[n] for n in order[:1]), default=inf)
    seen: set[Hashable] = set()
    for number in order:
        is_near = scores[number] <= best + _NEAR
        if is_near and structures[number] not in seen and len(seen) < _LEADERS:
            seen.add(structures[number])
            yield number
