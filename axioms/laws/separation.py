"""Laws that separate a sum into terms because one term is the smaller tensor.

Distributing every sum is left to the expanded ring: programs of sums grow fast. These laws do it
only where a term lacks an axis that the sum has. The reduction is then over a smaller tensor, and
where a row mean or a row maximum leaves a sum, the sum need not wait for it: LayerNorm and the
linear layer that follows take one loop over the weights,

    sum((x - m) g w) = sum(x g w) - m sum(g w),

with the mean m of the row taken in the same loop. Rounding: where |m| is far above the deviation of
x the two terms nearly cancel; search/closure/rounding.py and the float screen check that.
"""

from __future__ import annotations

from collections.abc import Callable

from mirage_py.axioms.laws.notation import total, x, y, z
from mirage_py.axioms.terms.law import Independent, Law, Narrower
from mirage_py.axioms.terms.term import Term

Y_FREE = (Independent("y", "i"),)

JOINED: dict[str, Callable[[Term, Term], Term]] = {
    "sum": lambda large, small: large + small,
    "difference": lambda large, small: large - small,
    "difference_from": lambda large, small: small - large,
}

LAWS = tuple(
    law
    for name, joined in JOINED.items()
    for law in (
        Law(
            f"separation.constant_in_product_of_{name}",
            total("i", joined(x, y) * z),
            joined(total("i", x * z), y * total("i", z)),
            when=Y_FREE,
            only=(Narrower(("z",), "y"),),
            why="a mean subtracted before a matmul; the sum of the weights is one for all rows",
        ),
        Law(
            f"separation.constant_in_{name}",
            total("i", joined(x, y * z)),
            joined(total("i", x), y * total("i", z)),
            when=Y_FREE,
            only=(Narrower(("z",), "y"),),
            why="the same over the next axis of the dimension: a loop, or the parts of a split one",
        ),
        Law(
            f"separation.product_of_{name}",
            total("i", joined(x, y) * z),
            joined(total("i", x * z), total("i", y * z)),
            only=(Narrower(("y", "z"), "x"),),
            why="a bias added before a matmul; its product with the weights is one for all rows",
        ),
        Law(
            f"separation.{name}",
            total("i", joined(x, y)),
            joined(total("i", x), total("i", y)),
            only=(Narrower(("y",), "x"),),
            why="the same over the next axis",
        ),
    )
)
