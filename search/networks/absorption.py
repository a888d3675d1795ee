"""Weights of keys and values absorbed: where keys, or values, of all heads are one product of a
tensor that the heads share, its weight goes onto the queries, or onto what the heads have seen.

q_h (x w_h)^T = (q_h w_h^T) x^T, and s_h (x v_h) = (s_h x) v_h: few queries then read the shared
tensor, as with a cache of latents, and keys and values are never made. The costs say where that
pays; it takes more products where there are many queries.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.search.networks.egraph import PatternNode
from mirage_py.search.networks.substitution import BY_HAND, Place, Substitution

# From [samples, places, heads, channels] to stacks of keys, transposed, and of values.
_KEYS, _VALUES = (0, 2, 3, 1), (0, 2, 1, 3)
_WHY = "a product of three matrices is the same in either order"


def absorptions() -> tuple[Substitution, ...]:
    """All of them: keys are transposed at once or in two steps."""
    made = (PatternNode("matmul", ("x", "w"), ("y",)), PatternNode("reshape", ("y",), ("r",)))
    once = (PatternNode("transpose", ("r",), ("k",)),)
    twice = (PatternNode("transpose", ("r",), ("p",)), PatternNode("transpose", ("p",), ("k",)))
    last = PatternNode("matmul", ("q", "k"), ("z",))
    keys = [
        Substitution(
            "the weight of keys onto queries, head by head",
            (*made, *way, last),
            ("z",),
            _keys,
            _WHY,
            BY_HAND,
        )
        for way in (once, twice)
    ]
    values = Substitution(
        "the weight of values onto what heads have seen, head by head",
        (*made, *once, last),
        ("z",),
        _values,
        _WHY,
        BY_HAND,
    )
    return (*keys, values)


def _sizes(place: Place, wanted: tuple[int, ...]) -> tuple[int, int, int, int, int, int] | None:
    """Samples, places, heads, channels of a head, queries, channels of what is shared; None where
    the product is not split into heads, or is arranged otherwise than ``wanted``.
    """
    split, x, w, q = (place.type(name) for name in ("r", "x", "w", "q"))
    if (split.rank, w.rank, q.rank) != (4, 2, 4):
        return None
    samples, places, heads, size = split.shape
    axes: tuple[int, ...] = (0, 1, 2, 3)
    for node in range(2, len(place.pattern) - 1):
        axes = tuple(axes[n] for n in place.attributes(node)["perm"])
    # Each head has columns of its own, each place a row, and each stack of queries its keys.
    is_split = heads * size == w.shape[1] and samples * places * w.shape[0] == x.elements
    if axes != wanted or not is_split or q.shape[:2] != (samples, heads):
        return None
    return samples, places, heads, size, q.shape[2], w.shape[0]


def _keys(place: Place) -> Sequence[int] | None:
    sizes = _sizes(place, _KEYS)
    if sizes is None:
        return None
    samples, places, heads, size, queries, shared = sizes
    (apart,) = place.add("reshape", [place.value("w")], shape=(shared, heads, size))
    (weight,) = place.add("transpose", [apart], perm=(1, 2, 0))
    onto = _by_head(place, place.value("q"), weight)
    (rows,) = place.add("reshape", [onto], shape=(samples, heads * queries, shared))
    (x,) = place.add("reshape", [place.value("x")], shape=(samples, places, shared))
    (columns,) = place.add("transpose", [x], perm=(0, 2, 1))
    (product,) = place.add("matmul", [rows, columns])
    return place.add("reshape", [product], shape=(samples, heads, queries, places))


def _values(place: Place) -> Sequence[int] | None:
    sizes = _sizes(place, _VALUES)
    if sizes is None:
        return None
    samples, places, heads, size, queries, shared = sizes
    (rows,) = place.add("reshape", [place.value("q")], shape=(samples, heads * queries, places))
    (x,) = place.add("reshape", [place.value("x")], shape=(samples, places, shared))
    (product,) = place.add("matmul", [rows, x])
    (seen,) = place.add("reshape", [product], shape=(samples, heads, queries, shared))
    (apart,) = place.add("reshape", [place.value("w")], shape=(shared, heads, size))
    (weight,) = place.add("transpose", [apart], perm=(1, 0, 2))
    return (_by_head(place, seen, weight),)


def _by_head(place: Place, stacks: int, weight: int) -> int:
    """[samples, heads, rows, a] by [heads, a, b]: each head's rows of all samples as one product,
    so that its weight is read once.
    """
    samples, heads, rows, inside = place.graph.type(stacks).shape
    outside = place.graph.type(weight).shape[2]
    (heads_first,) = place.add("transpose", [stacks], perm=(1, 0, 2, 3))
    (operand,) = place.add("reshape", [heads_first], shape=(heads, samples * rows, inside))
    (product,) = place.add("matmul", [operand, weight])
    (apart,) = place.add("reshape", [product], shape=(heads, samples, rows, outside))
    (back,) = place.add("transpose", [apart], perm=(1, 0, 2, 3))
    return back
