"""Laws of comparisons and masks. A mask that zeroes values moves through products and sums."""

from __future__ import annotations

from mirage_py.axioms.laws.notation import total, where, x, y, z, zero
from mirage_py.axioms.terms.law import Independent, Law
from mirage_py.axioms.terms.term import COMPARISONS, apply

MIRRORED = (("lt", "gt"), ("le", "ge"), ("eq", "eq"), ("ne", "ne"))

LAWS = (
    *(
        Law(
            f"masks.{left}_mirrored",
            apply(left, x, y),
            apply(right, y, x),
            both_ways=left != right,
        )
        for left, right in MIRRORED
    ),
    *(
        Law(
            f"masks.{op}_is_factor",
            where(apply(op, x, y), z, zero),
            apply(op, x, y) * z,
            why="a comparison is 0 or 1: selecting against zero is a product",
        )
        for op in COMPARISONS
    ),
    Law(
        "masks.multiply",
        where(x, y, zero) * z,
        where(x, y * z, zero),
        both_ways=True,
        why="mask the probabilities or mask what they weigh",
    ),
    Law("masks.divide", where(x, y, zero) / z, where(x, y / z, zero), both_ways=True),
    Law("masks.add", where(x, y, zero) + where(x, z, zero), where(x, y + z, zero)),
    Law(
        "masks.sum",
        total("i", where(x, y, zero)),
        where(x, total("i", y), zero),
        both_ways=True,
        when=(Independent("x", "i"),),
        why="a mask that is the same along the axis is applied once",
    ),
)
