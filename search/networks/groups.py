"""Grouped convolutions of fewer and wider groups, with zeros in the weight for what a group did not
read. Libraries run narrow groups far below the rate of tensor cores, so that more products can take
less time; which width pays is for the costs to say.

By hand: a rule has groups of two parts, and this is about any number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from mirage_py.errors import InputError
from mirage_py.search.networks.egraph import PatternNode
from mirage_py.search.networks.substitution import BY_HAND, Place, Substitution

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
# Groups that become one; channels of a group that are already enough.
_FACTORS = (2, 4, 8, 16, 32)
_WIDE = 64
_WHY = "what a zero of the weight is multiplied by does not count"

Value = TypeVar("Value")


def merged_weight(
    apply: Callable[..., Value], w: Value, shape: Sequence[int], groups: int, merged: int
) -> Value:
    """A weight of groups for fewer ones, of which each is block-diagonal in the old ones.

    Behind each block stand as many blocks of zeros as there are blocks; where one row of blocks
    ends one block earlier than that, the next one begins one later.
    """
    if groups % merged:
        raise InputError(f"{groups} groups are no multiple of {merged}")
    rows, channels, *rest = shape
    outer, inner = groups // merged, (rows // groups, channels, *rest)
    none = (0,) * len(inner)
    apart = apply("reshape", w, shape=(outer, merged, 1, *inner))
    wide = apply("pad", apart, before=(0, 0, 0, *none), after=(0, 0, merged, *none))
    flat = apply("reshape", wide, shape=(outer, merged * (merged + 1), *inner))
    cut = apply("slice", flat, axis=1, start=0, stop=merged * merged)
    blocks = apply("reshape", cut, shape=(outer, merged, merged, *inner))
    perm = (0, 1, 3, 2, *range(4, len(inner) + 3))
    turned = apply("transpose", blocks, perm=perm)
    return apply("reshape", turned, shape=(rows, merged * channels, *rest))


def fewer_groups() -> tuple[Substitution, ...]:
    """So many groups of a convolution as one, for several numbers."""
    return tuple(
        Substitution(
            f"{factor} groups of a convolution as one",
            (PatternNode(name, ("x", "w"), ("y",)),),
            ("y",),
            partial(_fewer, factor),
            _WHY,
            BY_HAND,
        )
        for name in _CONVOLUTIONS
        for factor in _FACTORS
    )


def _fewer(factor: int, place: Place) -> Sequence[int] | None:
    attributes, weight = place.attributes(0), place.type("w")
    groups = attributes["groups"]
    if groups % factor or weight.shape[1] * factor > _WIDE * 2:
        return None

    def apply(name: str, x: int, **given: Any) -> int:
        return place.add(name, [x], **given)[0]

    new = merged_weight(apply, place.value("w"), weight.shape, groups, factor)
    attributes["groups"] = groups // factor
    return place.add(place.operator(0), [place.value("x"), new], **attributes)
