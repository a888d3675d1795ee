"""The error that elements of an output have in common: of a row, of a head, or of all of them.

Each element of a result may be wrong by as much as rounding explains, but not all of them in the
same direction: the root of n is left of n independent errors. A factor that is lost, a divisor with
a term too few, or a result that is cut off instead of rounded is seen in the factor by which the
reference comes closest to the output, less 1, long before any single element is too far off.

Of a group of elements that factor may be off by three things. A result is rounded once, by half a
unit of its last place at most, and that of all elements together in different ways. What is rounded
elsewhere (the tolerance) differs from element to element: its share is the root of their number, in
which elements of one mantissa, as of equal rows, count as one. And errors that the analysis expects
may all be of one operand, so that nothing averages out of them: four times those are allowed for,
as of single elements.

Of an output of millions of elements so many are looked at, at some places of its longest axis.

Source: the weights are those of least squares; N. J. Higham and T. Mary, A new approach to
probabilistic rounding error analysis, 2019 (root growth).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Groups of those that are farthest off of which it is looked how many different numbers they hold,
# and elements of a group.
_MOST_GROUPS, _MOST_ELEMENTS = 256, 1 << 16
# Elements of an output that are looked at.
_MOST = 1 << 21
# Digits by which mantissas are told apart.
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class CommonError:
    """Of elements with these ``expected`` values the errors ``off``, with their signs, and what of
    that rounding may have in common, ``spread``; both as shares of what is allowed. ``weights`` are
    the expected values as shares of that, 0 where nothing is compared.

    ``tolerance`` is relative and independent for each element, ``roundoff`` is that of the type.
    ``number`` names the row of each element where these are a list of some.
    """

    library: Any
    expected: Any
    weights: Any
    off: Any
    spread: Any
    tolerance: float
    roundoff: float
    number: Any = None

    def excess(self) -> tuple[float, float]:
        """The largest of any row or index of an axis, and that of all elements, as shares of what
        is allowed; exact only where they are more than that.
        """
        tables = [self._table(quantity) for quantity in self._quantities()]
        groups = [
            self._largest([table[group] for table in tables], members, self.roundoff)
            for group, members in enumerate(self._members(), 1)
        ]
        of_all = self._largest([table[0] for table in tables], lambda _: ..., 0.0)
        return max(groups, default=0.0), of_all

    def _quantities(self) -> Iterator[Any]:
        """What is off, squares and fourth powers of weights, and common errors; one after the
        other, as each may be of millions of elements.
        """
        w = self.weights
        yield w * self.off
        yield w**2
        yield w**4
        yield self.library.abs(w) * self.spread

    def _table(self, quantity: Any) -> list[Any]:
        """Its sum over all elements, and by group for each way to part them: rows, and indices of
        each axis; of a matrix the rows are those along its first one.
        """
        if self.number is not None:
            count = self.library.bincount
            return [quantity.sum().reshape(1), count(self.number, weights=quantity)]
        rank = quantity.ndim
        if not rank:
            return [quantity.reshape(1)]
        rows = quantity.sum(axis=-1)
        found = [rows.sum().reshape(1), rows.reshape(-1)]
        found += [_summed_but(axis, rows) for axis in range(rank - 1) if rank > 2]
        return [*found, quantity.reshape(-1, quantity.shape[-1]).sum(axis=0)] if rank > 1 else found

    def _members(self) -> Iterator[Callable[[int], Any]]:
        """Where the elements of a group are, for each way to part them."""
        if self.number is not None:
            yield lambda group: self.number == group
            return
        rank, shape = self.weights.ndim, self.weights.shape
        if rank:
            yield lambda group: np.unravel_index(group, shape[:-1])
        yield from (partial(_along, axis) for axis in range(rank - 1) if rank > 2)
        if rank > 1:
            yield partial(_along, rank - 1)

    def _largest(
        self, sums: Sequence[Any], members: Callable[[int], Any], rounding: float
    ) -> float:
        xp = self.library
        shares = self._shares(sums, rounding)
        if not prod(shares.shape) or float(shares.max()) <= 1.0:
            return float(shares.max()) if prod(shares.shape) else 0.0
        found = 1.0
        for group in (int(g) for g in xp.argsort(-shares)[:_MOST_GROUPS] if shares[g] > found):
            where = members(group)
            of_group = [x[group : group + 1] for x in sums]
            of_group[2] = of_group[1] ** 2 / self._different(where)
            found = max(found, float(self._shares(of_group, rounding)[0]))
        return found

    def _shares(self, sums: Sequence[Any], rounding: float) -> Any:
        """The common errors of groups with these sums, as shares of what is allowed."""
        off, weight, fourths, spread = sums
        xp = self.library
        with np.errstate(divide="ignore", invalid="ignore"):
            allowed = rounding + self.tolerance * xp.sqrt(fourths) / weight + spread / weight
            return xp.where(weight > 0.0, xp.abs(off) / weight / allowed, 0.0)

    def _different(self, where: Any) -> float:
        """How many numbers a group holds, by their weights, and of one mantissa but one."""
        both = self.expected, self.weights
        expected, weights = (self._on_host(x[where].reshape(-1)) for x in both)
        squares = weights**2
        mantissas, _ = np.frexp(np.abs(expected))
        _, number = np.unique(np.round(mantissas, _DIGITS), return_inverse=True)
        together = np.bincount(number.reshape(-1), weights=squares)
        return float(squares.sum() ** 2 / (together**2).sum())

    def _on_host(self, values: Any) -> NDArray[np.float64]:
        some = values[:: -(-prod(values.shape) // _MOST_ELEMENTS)]
        return np.asarray(some if self.library is np else some.cpu())


def _summed_but(axis: int, values: Any) -> Any:
    """The sum over all axes but one."""
    return values.sum(axis=tuple(a for a in range(values.ndim) if a != axis))


def _along(axis: int, place: int) -> tuple[Any, ...]:
    """The index of what has this place on an axis."""
    return (*(slice(None) for _ in range(axis)), place)


def some_of(shape: Sequence[int]) -> tuple[int, NDArray[np.int64]] | None:
    """An axis and places on it where few enough elements are; None if all are."""
    size = prod(shape)
    if size <= _MOST or len(shape) < 2:
        return None
    axis = int(np.argmax(shape[:-1]))
    count = max(1, shape[axis] * _MOST // size)
    return axis, np.sort(np.random.default_rng(size).permutation(shape[axis])[:count])
