"""Two linear operators in a row as one convolution: a depthwise convolution or an average pool, and
the pointwise convolution of its result. It makes more products and one kernel less, and the value
between them is never stored; the costs say where that pays.

By hand: the new weight is a product of both, or spread over the windows of the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.search.networks.egraph import PatternNode
from mirage_py.search.networks.substitution import BY_HAND, Place, Substitution

_RANKS = (1, 2, 3)


def compositions() -> tuple[Substitution, ...]:
    """All of them."""
    found: list[Substitution] = []
    for rank in _RANKS:
        name = f"conv{rank}d"
        pointwise = PatternNode(name, ("y", "w"), ("z",))
        found.append(
            Substitution(
                "depthwise and pointwise convolution as one",
                (PatternNode(name, ("x", "v"), ("y",)), pointwise),
                ("z",),
                _separable,
                "a sum over channels of sums over windows is one sum, as nothing is between them",
                BY_HAND,
            )
        )
        found.append(
            Substitution(
                "average pool and pointwise convolution as one",
                (PatternNode(f"avg_pool{rank}d", ("x",), ("y",)), pointwise),
                ("z",),
                _pooled,
                "a mean is a sum with equal weights",
                BY_HAND,
            )
        )
    return tuple(found)


def _is_pointwise(place: Place) -> bool:
    """Whether the second operator is a plain product at each place."""
    a, weight = place.attributes(1), place.type("w")
    plain = set(weight.shape[2:]) == set(a["stride"]) == {1} and set(a["padding"]) == {0}
    return plain and a["groups"] == 1


def _separable(place: Place) -> Sequence[int] | None:
    deep, weight = place.type("v"), place.type("w")
    attributes = place.attributes(0)
    channels = place.type("x").shape[1]
    if not attributes["groups"] == channels == deep.shape[0] > 1 or not _is_pointwise(place):
        return None
    (taps,) = place.add("reshape", [place.value("v")], shape=(1, channels, *deep.shape[2:]))
    wide = (*weight.shape[:2], *deep.shape[2:])
    (spread,) = place.add("expand", [place.value("w")], shape=wide)
    (whole,) = place.add("mul", [spread, taps])
    return place.add(place.operator(1), [place.value("x"), whole], **{**attributes, "groups": 1})


def _pooled(place: Place) -> Sequence[int] | None:
    pool, weight = place.attributes(0), place.type("w")
    counts_all = pool["count_padding"] or not any(pool["padding"])
    if pool["ceil"] or not counts_all or not _is_pointwise(place):
        return None
    # The weight and zeros, whose mean is its share exactly, as no number that is rounded would be.
    none, more = (0,) * weight.rank, [k - 1 for k in pool["kernel"]]
    (padded,) = place.add("pad", [place.value("w")], before=none, after=(0, 0, *more))
    axes = tuple(range(2, weight.rank))
    (share,) = place.add("mean", [padded], axes=axes, keep=1)
    wide = (*weight.shape[:2], *pool["kernel"])
    (whole,) = place.add("expand", [share], shape=wide)
    operands = [place.value("x"), whole]
    return place.add(place.operator(1), operands, stride=pool["stride"], padding=pool["padding"])
