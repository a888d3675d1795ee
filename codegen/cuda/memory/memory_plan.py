"""The shared-memory plan: offsets of buffers with given lifetimes in the fewest bytes.

Dynamic storage allocation (problem SR2 of Garey and Johnson, NP-hard): a buffer is a rectangle,
lifetime by bytes, and no two may overlap. The bytes live at one step are a lower bound. Where the
best of several first-fit orders is above that bound, branch and bound decides. Mirage always takes
the best of some heuristics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.memory.memory_search import (
    Box,
    aligned,
    height,
    least_packing,
    lower_bound,
)
from mirage_py.errors import ScheduleError

# Placements that branch and bound may try: some 0.2 s, and the same answer on every machine. Eight
# buffers of any lives never needed a tenth of it.
_MAX_PLACEMENTS = 20_000


@dataclass(frozen=True, slots=True)
class Buffer:
    """``size_bytes`` at a multiple of ``alignment_bytes`` (a power of two), in use from step
    ``first`` to step ``last``, both included.

    Steps are phases of a schedule: a barrier lies between two of them, so that buffers without a
    common step may share memory.
    """

    name: str
    size_bytes: int
    alignment_bytes: int
    first: int
    last: int

    def __post_init__(self) -> None:
        assert self.size_bytes > 0, f"{self.name} is empty"
        assert self.first <= self.last, f"{self.name} is never in use"
        assert self.alignment_bytes.bit_count() == 1, f"{self.name}: {self.alignment_bytes}"

    @property
    def box(self) -> Box:
        """Life and size, without the name."""
        return Box(self.size_bytes, self.alignment_bytes, self.first, self.last)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The offset of each buffer by name; ``is_optimal`` if it is proved that no plan is smaller."""

    offsets: Mapping[str, int]
    total_bytes: int
    is_optimal: bool


def plan_memory(
    buffers: Sequence[Buffer], limit_bytes: int, max_placements: int = _MAX_PLACEMENTS
) -> MemoryPlan:
    """The smallest plan; ScheduleError if it takes more than ``limit_bytes``.

    Names differ. Instances that need more than ``max_placements`` get the best plan found by then.
    """
    boxes = [b.box for b in buffers]
    plans = (_first_fit(boxes, order) for order in _orders(boxes))
    offsets = min(plans, key=lambda plan: height(boxes, plan))
    is_optimal = height(boxes, offsets) == lower_bound(boxes)
    if not is_optimal:
        offsets, is_optimal = least_packing(boxes, offsets, max_placements)
    return _within(offsets, buffers, limit_bytes, is_optimal)


def plan_without_reuse(buffers: Sequence[Buffer], limit_bytes: int) -> MemoryPlan:
    """The plan in which every buffer has a place of its own, in order: what reuse is worth."""
    offsets = []
    end = 0
    for buffer in buffers:
        offsets.append(aligned(end, buffer.alignment_bytes))
        end = offsets[-1] + buffer.size_bytes
    return _within(offsets, buffers, limit_bytes, is_optimal=False)


def _orders(boxes: Sequence[Box]) -> Iterator[list[int]]:
    """Orders of placing: what is hard to place goes first, by several measures of hard."""
    numbers = range(len(boxes))
    lives = [b.last - b.first + 1 for b in boxes]
    yield list(numbers)
    yield sorted(numbers, key=lambda n: -boxes[n].size)
    yield sorted(numbers, key=lambda n: -boxes[n].size * lives[n])
    yield sorted(numbers, key=lambda n: (-lives[n], -boxes[n].size))
    yield sorted(numbers, key=lambda n: (-boxes[n].alignment, -boxes[n].size))
    yield sorted(numbers, key=lambda n: (boxes[n].first, -boxes[n].size))
    yield sorted(numbers, key=lambda n: (-boxes[n].last, -boxes[n].size))


def _first_fit(boxes: Sequence[Box], order: Sequence[int]) -> list[int]:
    """Each box in turn at the lowest place that is free for all of its life."""
    offsets = [0] * len(boxes)
    placed: list[int] = []
    for number in order:
        box = boxes[number]
        offset = 0
        for other in sorted((n for n in placed if boxes[n].meets(box)), key=offsets.__getitem__):
            if offset + box.size <= offsets[other]:
                break
            offset = max(offset, aligned(offsets[other] + boxes[other].size, box.alignment))
        offsets[number] = offset
        placed.append(number)
    return offsets


def _within(
    offsets: Sequence[int], buffers: Sequence[Buffer], limit_bytes: int, is_optimal: bool
) -> MemoryPlan:
    total = max((o + b.size_bytes for o, b in zip(offsets, buffers, strict=True)), default=0)
    if total <= limit_bytes:
        names = (b.name for b in buffers)
        return MemoryPlan(dict(zip(names, offsets, strict=True)), total, is_optimal)
    largest = sorted(buffers, key=lambda b: (-b.size_bytes, b.name))[:3]
    raise ScheduleError(
        f"{total} bytes of shared memory, and a block has {limit_bytes}",
        why="the largest: " + ", ".join(f"{b.name} of {b.size_bytes} bytes" for b in largest),
        repair="take smaller tiles or fewer stages",
    )
