"""Which plans of a ranking are worth compiling: the best of each kind, without near-copies.

The model ranks plans of one kind; between kinds (one kernel, two that split a reduction, a
library's product) its errors are larger than the differences. So each kind has seats of its own,
shared out among numbers of parts, and what is left goes to the best of all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import zip_longest

from mirage_py.search.instance import Instance

_PLANS_PER_TILING = 3
# Share of the seats that kinds have whatever the model says of them.
_RESERVED = 0.5


def diverse(ranked: Sequence[Instance], limit: int) -> tuple[Instance, ...]:
    """At most ``limit`` of a ranking, best first, at most a few of them with the same tiles.

    Half of the seats are reserved in equal numbers for the kinds that occur, at least one for each
    (while there are seats). Plans of a kind take their seats by turns among the numbers of parts.
    """
    candidates = list(_without_copies(ranked))
    kinds = _by_kind(candidates)
    seats = max(1, int(limit * _RESERVED) // max(1, len(kinds)))
    chosen: dict[int, None] = {}
    for groups in kinds.values():
        chosen.update(dict.fromkeys(_by_turns(groups)[:seats]))
    reserved = list(chosen)[:limit]
    rest = (n for n in range(len(candidates)) if n not in chosen)
    places = [*reserved, *(n for n, _ in zip(rest, range(limit - len(reserved)), strict=False))]
    return tuple(candidates[n] for n in sorted(places))


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
