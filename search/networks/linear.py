"""Substitutions of linear algebra: sums of products as one, and products in another order."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.search.networks.egraph import PatternNode
from mirage_py.search.networks.substitution import BY_HAND, Place, Substitution

_PRODUCTS = ("matmul", "conv1d", "conv2d", "conv3d")


def _weights_added(place: Place) -> Sequence[int] | None:
    """x w + x v = x (w + v)."""
    if place.attributes(0) != place.attributes(1) or place.type("w") != place.type("v"):
        return None
    (weight,) = place.add("add", [place.value("w"), place.value("v")])
    return place.add(place.operator(0), [place.value("x"), weight], **place.attributes(0))


def _operands_joined(place: Place) -> Sequence[int] | None:
    """x w + y v = [x y] [w; v]."""
    w, v = place.type("w"), place.type("v")
    x, y = place.type("x"), place.type("y")
    if place.attributes(0) != place.attributes(1) or place.value("x") == place.value("y"):
        return None
    is_matmul = place.operator(0) == "matmul"
    if is_matmul and (w.rank != 2 or v.rank != 2 or x.rank != y.rank):
        return None
    if not is_matmul and (place.attributes(0)["groups"] != 1 or w.shape[2:] != v.shape[2:]):
        return None
    joined, stacked = (x.rank - 1, 0) if is_matmul else (1, 1)
    (operand,) = place.add("concat", [place.value("x"), place.value("y")], axis=joined)
    (weight,) = place.add("concat", [place.value("w"), place.value("v")], axis=stacked)
    return place.add(place.operator(0), [operand, weight], **place.attributes(0))


def _to_the_right(place: Place) -> Sequence[int] | None:
    """(x w) v = x (w v)."""
    if place.type("w").rank != 2 or place.type("v").rank != 2:
        return None
    (weight,) = place.add("matmul", [place.value("w"), place.value("v")])
    return place.add("matmul", [place.value("x"), weight])


def _to_the_left(place: Place) -> Sequence[int] | None:
    """x (w v) = (x w) v."""
    (first,) = place.add("matmul", [place.value("x"), place.value("w")])
    return place.add("matmul", [first, place.value("v")])


def linear() -> tuple[Substitution, ...]:
    """All of them."""
    found = []
    for name in _PRODUCTS:
        added = PatternNode("add", ("a", "b"), ("z",))
        one, other = (PatternNode(name, ("x", "w"), ("a",)), PatternNode(name, ("x", "v"), ("b",)))
        why = "a product is linear in its weight"
        found.append(
            Substitution(f"a sum of two {name} of one operand as one", (one, other, added), ("z",),
                         _weights_added, why, BY_HAND)
        )  # fmt: skip
        other = PatternNode(name, ("y", "v"), ("b",))
        why = "a sum over two ranges is a sum over both"
        found.append(
            Substitution(f"a sum of two {name} as one", (one, other, added), ("z",),
                         _operands_joined, why, BY_HAND)
        )  # fmt: skip
    why = "sums of products may be exchanged"
    right = (PatternNode("matmul", ("x", "w"), ("y",)), PatternNode("matmul", ("y", "v"), ("z",)))
    left = (PatternNode("matmul", ("w", "v"), ("y",)), PatternNode("matmul", ("x", "y"), ("z",)))
    found.append(Substitution("(x w) v = x (w v)", right, ("z",), _to_the_right, why, BY_HAND))
    found.append(Substitution("x (w v) = (x w) v", left, ("z",), _to_the_left, why, BY_HAND))
    return tuple(found)
