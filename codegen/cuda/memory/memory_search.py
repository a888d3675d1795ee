"""Branch and bound for the least height in which boxes of fixed lifetimes pack.

Every plan can be pushed down until each box lies on an overlapping one or at 0. Such plans are made
by stacking: boxes in order of their offsets, each right above the highest placed one that it
overlaps in time. The search stacks, and prunes what cannot be better.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Box:
    """``size`` at a multiple of ``alignment``, from step ``first`` to step ``last``."""

    size: int
    alignment: int
    first: int
    last: int

    def meets(self, other: Box) -> bool:
        """Whether both live at some step."""
        return self.first <= other.last and other.first <= self.last


def aligned(offset: int, alignment: int) -> int:
    """The first multiple of the alignment that is not below the offset."""
    return -(-offset // alignment) * alignment


def height(boxes: Sequence[Box], offsets: Sequence[int]) -> int:
    """The end of the highest box."""
    return max((o + b.size for o, b in zip(offsets, boxes, strict=True)), default=0)


def lower_bound(boxes: Sequence[Box]) -> int:
    """No plan is lower: at each step what lives is stacked, each box but the highest rounded up to
    the least alignment among them.
    """
    steps = dict.fromkeys(b.first for b in boxes)
    return max((_stacked([b for b in boxes if b.first <= s <= b.last]) for s in steps), default=0)


def _stacked(boxes: Sequence[Box]) -> int:
    unit = min(b.alignment for b in boxes)
    rounded = [aligned(b.size, unit) for b in boxes]
    return sum(rounded) - max(r - b.size for r, b in zip(rounded, boxes, strict=True))


def least_packing(
    boxes: Sequence[Box], known: Sequence[int], max_placements: int
) -> tuple[list[int], bool]:
    """The lowest plan and whether that is proved; ``known`` is a plan to be beaten.

    It is proved unless the search would have placed boxes more often than ``max_placements``.
    """
    search = _Search(boxes, list(known), max_placements)
    search.stack()
    return search.best, search.left > 0


@dataclass(slots=True)
class _Search:
    boxes: Sequence[Box]
    best: list[int]
    left: int
    top: int = 0
    bound: int = 0
    # Of each step the end of the highest placed box that lives then, and what has still to come.
    ends: list[int] = field(default_factory=list)
    coming: list[int] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)
    # (placed boxes, ends) -> the lowest offset from which it was searched
    seen: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.top = height(self.boxes, self.best)
        self.bound = lower_bound(self.boxes)
        # Only steps at which a box begins matter: what meets, meets at such a step.
        firsts = sorted(dict.fromkeys(b.first for b in self.boxes))
        self.boxes = [
            Box(b.size, b.alignment, firsts.index(b.first), bisect_right(firsts, b.last) - 1)
            for b in self.boxes
        ]
        self.ends = [0] * len(firsts)
        self.coming = [
            sum(b.size for b in self.boxes if b.first <= s <= b.last) for s in range(len(firsts))
        ]
        self.offsets = [None] * len(self.boxes)

    def stack(self, floor: int = 0, placed: int = 0) -> None:
        """Tries every way to go on with boxes at ``floor`` or higher, in order of their offsets."""
        if self._is_hopeless(floor, placed):
            return
        if placed == (1 << len(self.boxes)) - 1:
            self.best, self.top = [o for o in self.offsets if o is not None], max(self.ends)
            return
        waiting = [n for n, o in enumerate(self.offsets) if o is None]
        lowest = {n: self._lowest(n) for n in waiting}
        # A box that ends below where the next one begins would fit there: it need not wait.
        ceiling = min(lowest[n] + self.boxes[n].size for n in waiting)
        tried: dict[Box, None] = {}
        for n in sorted(waiting, key=lambda n: (lowest[n], -self.boxes[n].size, n)):
            box = self.boxes[n]
            if floor <= lowest[n] < ceiling and box not in tried and self.top > self.bound:
                tried[box] = None
                self._place(n, lowest[n], placed)

    def _place(self, number: int, offset: int, placed: int) -> None:
        if self.left == 0:
            return
        self.left -= 1
        box = self.boxes[number]
        steps = range(box.first, box.last + 1)
        before = [self.ends[s] for s in steps]
        for s in steps:
            self.ends[s] = offset + box.size
            self.coming[s] -= box.size
        self.offsets[number] = offset
        self.stack(offset, placed | 1 << number)
        self.offsets[number] = None
        for s, end in zip(steps, before, strict=True):
            self.ends[s] = end
            self.coming[s] += box.size

    def _lowest(self, number: int) -> int:
        box = self.boxes[number]
        return aligned(max(self.ends[box.first : box.last + 1]), box.alignment)

    def _is_hopeless(self, floor: int, placed: int) -> bool:
        """Whether nothing below the best can follow, or all of it was tried before."""
        for end, coming in zip(self.ends, self.coming, strict=True):
            if (max(end, floor) if coming else end) + coming >= self.top:
                return True
        key = (placed, tuple(self.ends))
        if self.seen.get(key, floor + 1) <= floor:
            return True
        self.seen[key] = floor
        return False
