"""Selection of the plans to compile: the best of each kind, without near-duplicates.

The model ranks plans of one kind well; between kinds (one kernel, two kernels with a split
reduction, a library matmul) its errors are larger than the differences. So each kind has a quota of
its own, divided among numbers of splits, and the rest goes to the best of all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import zip_longest

from mirage_py.search.rank.instance import Instance

_PLANS_PER_TILING = 3
# Of several kernels the one that takes longest is the one to vary.
_PLANS_PER_LEADING_TILING = 4
# Share of the seats of the kind that the best plan is of. On an H200 the fastest plan of a kind was
# among its 50 best predictions.
_BEST_KIND = 0.4
# The other kinds share the rest, as if there were so many at least.
_USUAL_OTHERS = 3
# Numbers of splits, and tiles of one number, share the quota of a kind if they are so near to its
# best.
_NEAR_SPLITS = 1.25
_NEAR_TILES = 1.15
# A plan of another kind than the best one's takes no seat that is left over if it is predicted to
# take this many times as long.
_NEAR = 1.6


def diverse(ranked: Sequence[Instance], limit: int) -> tuple[Instance, ...]:
    """At most ``limit`` of a ranking, best first, at most a few of them with the same tiles.

    Every kind that occurs has a quota, at least one plan (while ``limit`` allows), filled in turn
    among the numbers of splits, and among the grids of the kernel that takes longest. The rest goes
    to the best of all.
    """
    candidates = list(_without_copies(ranked))
    kinds = _by_kind(candidates)
    best = max(1, int(limit * _BEST_KIND))
    other = max(1, (limit - best) // max(_USUAL_OTHERS, len(kinds) - 1))
    reserved: list[int] = []
    for number, groups in enumerate(kinds.values()):
        kept = _near_splits(groups, candidates)
        turns = _by_turns([_grids_by_turns(group, candidates) for group in kept])
        reserved += turns[: best if number == 0 else other]
    chosen = dict.fromkeys(reserved[:limit])
    for number, instance in enumerate(candidates):
        if len(chosen) >= limit:
            break
        near = instance.estimate.time_us <= _NEAR * candidates[0].estimate.time_us
        if near or instance.kind == candidates[0].kind:
            chosen[number] = None
    return tuple(candidates[n] for n in sorted(chosen))


def _without_copies(ranked: Iterable[Instance]) -> Iterable[Instance]:
    """At most a few with the same tiles, of whatever family: those differ in trifles then. A few
    more where only a kernel differs that is not the longest one.
    """
    counts: dict[Hashable, int] = {}
    for instance in ranked:
        whole, leading = ("whole", instance.tiling), ("leading", instance.leading)
        few = counts.get(whole, 0) < _PLANS_PER_TILING
        if few and counts.get(leading, 0) < _PLANS_PER_LEADING_TILING:
            counts[leading] = counts.get(leading, 0) + 1
            counts[whole] = counts.get(whole, 0) + 1
            yield instance


def _by_kind(ranked: Sequence[Instance]) -> Mapping[Hashable, Sequence[Sequence[int]]]:
    """Positions in the ranking, by kind and then by the name, which has the splits; best first."""
    found: dict[Hashable, dict[str, list[int]]] = {}
    for number, instance in enumerate(ranked):
        found.setdefault(instance.sort, {}).setdefault(instance.name, []).append(number)
    return {kind: list(groups.values()) for kind, groups in found.items()}


def _near_splits(
    groups: Sequence[Sequence[int]], candidates: Sequence[Instance]
) -> list[Sequence[int]]:
    """Without the numbers of splits whose best plan is much slower than that of the kind."""
    best_us = [candidates[group[0]].estimate.time_us for group in groups]
    return [
        group
        for group, time_us in zip(groups, best_us, strict=True)
        if time_us <= _NEAR_SPLITS * min(best_us)
    ]


def _grids_by_turns(group: Sequence[int], candidates: Sequence[Instance]) -> list[int]:
    """The best plan of each grid of the kernel that takes longest, then the second of each, and so
    on; what is far behind comes last.
    """
    most_us = _NEAR_TILES * candidates[group[0]].estimate.time_us
    copies: dict[Hashable, int] = {}
    ordered: list[tuple[bool, int, int]] = []
    for number in group:
        instance = candidates[number]
        copy = copies.get(instance.leading_grid, 0)
        copies[instance.leading_grid] = copy + 1
        is_far = instance.estimate.time_us > most_us
        ordered.append((is_far, 0 if is_far else copy, number))
    return [number for _, _, number in sorted(ordered)]


def _by_turns(groups: Sequence[Sequence[int]]) -> list[int]:
    """The first of each group, then the second of each, and so on."""
    return [n for turn in zip_longest(*groups) for n in turn if n is not None]
