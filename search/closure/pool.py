"""The pool of a closure: every tensor that a block can compute, with all ways to compute it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mirage_py.ugraph.ir.node import Attr

Merging = Literal["values", "structure"]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to make a tensor: an operator of a block graph applied to tensors of the pool.

    ``attr`` is that of the block graph's node; an accumulator's is the dimension it accumulates
    over.
    """

    op: str
    args: tuple[int, ...] = ()
    attr: Attr = None


@dataclass(slots=True)
class PoolTensor:
    """A value that a block holds unsplit, or one tile at a time.

    ``looped``   the dimension of the loop it lives in, None outside of loops
    ``dims``     the dimensions of its tile
    ``stage``    looped: the earliest loop, counted from 1, that can compute it (any later one can
                 do so again); else the number of loops that must be over before it exists. The
                 least over its alternatives
    ``classes``  what it computes, as classes of the table; more than one where the laws do not
                 join them
    """

    value: int
    looped: str | None
    dims: tuple[str, ...]
    stage: int
    classes: list[int] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)


class Pool:
    """Tensors by number. Two of equal value that live in the same loop are one.

    With ``merging="structure"`` only those are one that the same operator makes of the same
    tensors; it is there to measure what merging saves.
    """

    def __init__(self, merging: Merging = "values") -> None:
        self.tensors: list[PoolTensor] = []
        self._merging = merging
        self._numbers: dict[tuple[Hashable, str | None], int] = {}
        self._alternatives: set[tuple[int, Alternative]] = set()

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, number: int) -> PoolTensor:
        return self.tensors[number]

    def with_value(self, value: int) -> Iterator[int]:
        """All tensors of a value, inside of loops and outside, in the order they were found."""
        return (n for n, t in enumerate(self.tensors) if t.value == value)

    def add(
        self, value: int, looped: str | None, dims: Sequence[str], stage: int, way: Alternative
    ) -> tuple[int, bool]:
        """Number of the tensor, and whether it is new or can now exist at an earlier stage."""
        identity = value if self._merging == "values" else way
        number = self._numbers.setdefault((identity, looped), len(self.tensors))
        moved = number == len(self.tensors)
        if moved:
            self.tensors.append(PoolTensor(value, looped, tuple(dims), stage))
        tensor = self.tensors[number]
        # A tensor made from itself (x * 1, max(x, x)) is no way to make it.
        if number not in way.args and (number, way) not in self._alternatives:
            self._alternatives.add((number, way))
            tensor.alternatives.append(way)
        if stage < tensor.stage:
            tensor.stage = stage
            moved = True
        return number, moved

    def is_later(self, looped: str | None, operand: int) -> bool:
        """Whether a tensor of a loop comes a loop later than its operand, which is in none."""
        return looped is not None and self.tensors[operand].looped is None

    def earliest_stage(self, looped: str | None, way: Alternative) -> int:
        """The stage at which a way can make a tensor of a loop, or of none."""
        first = 0 if looped is None else 1
        return max(
            (self.tensors[a].stage + self.is_later(looped, a) for a in way.args), default=first
        )

    def formula(self, way: Alternative, depth: int = 2) -> str:
        """An alternative as a formula."""
        attr = "" if way.attr is None else f"[{_attr_text(way.attr)}]"
        args = ", ".join(self._formula(a, depth - 1) for a in way.args)
        if not way.args:
            return _attr_text(way.attr)
        return f"{way.op}{attr}({args})"

    def _formula(self, number: int, depth: int) -> str:
        way = self.tensors[number].alternatives[0]
        if way.args and depth == 0:
            return f"t{number}"
        return self.formula(way, depth)


def _attr_text(attr: Attr) -> str:
    return ", ".join(map(str, attr)) if isinstance(attr, tuple) else str(attr)


class OperatorCount:
    """The counts in one pool. Without a bound (``most`` is None) nothing is counted.

    Loads, constants and sizes count as none; every other step of a block counts as one, and a sum
    over a tile with its accumulator as two. A shared tensor counts once. The minimum is hard to
    find (it is that of a smallest acyclic graph), so each tensor keeps one derivation, the smallest
    that the derivations of its operands combine to. The count is that of a real derivation, but not
    always the minimum.
    """

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
