"""Which plans of a ranking are worth compiling: the best of each kind, without near-copies.

The model ranks plans of one kind; between kinds (one kernel, two that split a reduction, a
library's product) its errors are larger than the differences. So each kind has seats of its own,
shared out among numbers of parts, and what is left goes to the best of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import zip_longest

from mirage_py.search.instance import Instance

_PLANS_PER_TILING = 3
# Share of the seats that is reserved, and the kinds it is divided by at least.
_RESERVED = 0.5
_USUAL_KINDS = 4
# A plan of another kind than the best one's takes no open seat if it is predicted to take this many
# times as long.
_NEAR = 1.6
# Such a kind takes at most this share of all seats.
_LARGEST_SHARE = 0.5


def diverse(ranked: Sequence[Instance], limit: int) -> tuple[Instance, ...]:
    """At most ``limit`` of a ranking, best first, at most a few of them with the same tiles.

    Half of the seats are reserved in equal numbers for the kinds that occur, at least one for each
    (while there are seats). Plans of a kind take them by turns among the numbers of parts. The
    other seats are open to plans of the best kind, and to those of others that are near the best.
    """
    candidates = list(_without_copies(ranked))
    kinds = _by_kind(candidates)
    seats = max(1, int(limit * _RESERVED) // max(_USUAL_KINDS, len(kinds)))
    reserved = [n for groups in kinds.values() for n in _by_turns(groups)[:seats]][:limit]
    chosen = dict.fromkeys(reserved)
    counts = Counter(candidates[n].kind for n in reserved)
    for number, instance in enumerate(candidates):
        if len(chosen) < limit and number not in chosen:
            best = candidates[0]
            near = instance.estimate.time_us <= _NEAR * best.estimate.time_us
            may_grow = near and counts[instance.kind] < limit * _LARGEST_SHARE
            if may_grow or instance.kind == best.kind:
                counts[instance.kind] += 1
                chosen[number] = None
    return tuple(candidates[n] for n in sorted(chosen))


def _without_copies(ranked: Iterable[Instance]) -> Iterable[Instance]:
    """At most a few with the same tiles, of whatever family: those differ in trifles then."""
    counts: dict[Hashable, int] = {}
    for instance in ranked:
        counts[instance.tiling] = counts.get(instance.tiling, 0) + 1
        if counts[instance.tiling] <= _PLANS_PER_TILING:
            yield instance


def _by_kind(ranked: Sequence[Instance]) -> Mapping[str, Sequence[Sequence[int]]]:
    """Positions in the ranking, by kind and then by the name, which has the parts."""
    found: dict[str, dict[str, list[int]]] = {}
    for number, instance in enumerate(ranked):
        found.setdefault(instance.kind, {}).setdefault(instance.name, []).append(number)
    return {kind: list(groups.values()) for kind, groups in found.items()}


def _by_turns(groups: Sequence[Sequence[int]]) -> list[int]:
    """The first of each group, then the second of each, and so on."""
    return [n for turn in zip_longest(*groups) for n in turn if n is not None]
