"""The order in which plans are tried: by two predictions, and by structure, in turns.

Within a structure (kernels, splits, clusters: ``Instance.name``) predictions rank well; from one to
another they err by more than the differences. So the first plans are not all of the structure that
is predicted to be the fastest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import zip_longest
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Structures that have a plan among the first ones, and by how much, as a logarithm of the time, the
# best of one may be behind the best of all.
_LEADERS = 8
_NEAR = 0.5
# Digits of predictions that are compared: one model predicts plans of both back ends.
_DIGITS = 3
# Of each of these the best with so many different grids: eight heads of attention with split keys
# took 14.6 us on an H200 with 64 rows in a block, which came fortieth, and 17.6 with 128.
_GRIDS = 2


class _Tried(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def doubt(self) -> str: ...
    @property
    def grid(self) -> Hashable: ...


def in_turns(instances: Sequence[_Tried], scores: ArrayLike, roofline: ArrayLike) -> list[int]:
    """The numbers of all plans in the order in which they are tried, those in doubt last.

    By learned ``scores`` (logarithms of a time), the best of each structure and of two grids of it,
    and by the ``roofline``, in turns: a program may be unlike all that was measured.
    """
    doubted = [bool(i.doubt) for i in instances]
    by_score, by_roofline = (
        sorted(map(int, np.argsort(values, kind="stable")), key=lambda n: doubted[n])
        for values in (scores, roofline)
    )
    leaders = _leaders(instances, np.asarray(scores), by_score)
    turns = (iter(by_score), iter(leaders), iter(by_roofline))
    found: dict[int, None] = {}
    while len(found) < len(instances):
        for turn in turns:
            number = next((n for n in turn if n not in found), None)
            if number is not None:
                found[number] = None
    return sorted(found, key=lambda n: doubted[n])


def roofline_places(
    instances: Sequence[_Tried],
    backends: Sequence[str],
    scores: ArrayLike,
    roofline: ArrayLike,
) -> NDArray[np.float64]:
    """The places of all plans by the ``roofline`` (logarithms of a time), and of those that it
    takes for equal by learned ``scores``.

    Between back ends it says nothing. So where another one has the same tiles and a better score, a
    plan comes after all others: on an H200 a third of the first plans of a first call were Triton's
    for the prediction of their CUDA twins, and had not compiled when it ended.
    """
    rounded, learned = np.round(np.asarray(roofline), _DIGITS), np.asarray(scores)
    tilings = [(i.name, i.grid, us) for i, us in zip(instances, rounded.tolist(), strict=True)]
    likely: dict[Hashable, str] = {}
    for number in map(int, np.argsort(learned, kind="stable")):
        likely.setdefault(tilings[number], backends[number])
    is_other = np.array([likely[t] != b for t, b in zip(tilings, backends, strict=True)])
    places = np.empty(len(instances))
    places[np.lexsort((learned, rounded, is_other))] = np.arange(len(instances))
    return places


def _leaders(
    instances: Sequence[_Tried], scores: np.ndarray, order: Sequence[int]
) -> Iterator[int]:
    """The best of each structure, in ``order``, of a few that are near the best of all; then the
    best of these with another grid of the kernel that takes longest.
    """
    best = min((scores[n] for n in order[:1]), default=inf)
    grids: dict[str, dict[Hashable, int]] = {}
    for number in order:
        name = instances[number].name
        if scores[number] <= best + _NEAR and (name in grids or len(grids) < _LEADERS):
            grids.setdefault(name, {}).setdefault(instances[number].grid, number)
    turns = zip_longest(*([*of_name.values()][:_GRIDS] for of_name in grids.values()))
    yield from (number for turn in turns for number in turn if number is not None)
