"""The number of operators that a kernel needs to compute a tensor, and a bound on it.

Loads, constants and sizes count as none; every other step of a block counts as one, and a sum over
a tile with its accumulator as two. A shared tensor counts once. The minimum is hard to find (it is
that of a smallest acyclic graph), so each tensor keeps one derivation, the smallest that the
derivations of its operands combine to. The count is that of a real derivation, but not always the
minimum.
"""

from __future__ import annotations

from mirage_py.search.closure.pool import Alternative


class OperatorCount:
    """The counts in one pool. Without a bound (``most`` is None) nothing is counted."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        # For each tensor those that one derivation of it computes, itself included.
        self._computed: dict[int, frozenset[int]] = {}

    def allows(self, way: Alternative) -> bool:
        """Whether a tensor that is made in this way is within the bound."""
        if self.most is None or not way.args:
            return True
        return len(self._operands(way)) < self.most

    def note(self, number: int, way: Alternative) -> bool:
        """Take in a way to make a tensor; whether fewer operators are known to do now."""
        if self.most is None:
            return False
        computed = self._operands(way) | {number} if way.args else frozenset[int]()
        known = self._computed.get(number)
        if known is not None and len(known) <= len(computed):
            return False
        self._computed[number] = computed
        return True

    def is_full(self, number: int) -> bool:
        """Whether everything computed from a tensor of the pool exceeds the bound."""
        return self.most is not None and len(self._computed[number]) >= self.most

    def least(self, number: int) -> int:
        """The count of a tensor that is in the pool; 0 without a bound."""
        return 0 if self.most is None else len(self._computed[number])

    def _operands(self, way: Alternative) -> frozenset[int]:
        return frozenset[int]().union(*(self._computed[a] for a in way.args))
