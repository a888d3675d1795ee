"""Places in shared memory: the fewest bytes in which buffers of different lives fit.

Dynamic storage allocation (problem SR2 of Garey and Johnson, NP-hard): a buffer is a rectangle, its
life by its bytes, and no two may overlap. The sum of what is live at one step bounds it from below,
and some order of placing each buffer as low as it goes reaches the optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirage_py.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Buffer:
    """``size_bytes`` at a multiple of ``alignment_bytes``, in use from step ``first`` to ``last``,
    both included.

    Steps are phases of a schedule: between two of them lies a barrier, so that buffers without a
    common step may share memory.
    """

    name: str
    size_bytes: int
    alignment_bytes: int
    first: int
    last: int

    def meets(self, other: Buffer) -> bool:
        """Whether both are in use at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The offset of each buffer by name; ``is_optimal`` if it is proved that no plan is smaller."""

    offsets: Mapping[str, int]
    total_bytes: int
    is_optimal: bool


def plan_memory(buffers: Sequence[Buffer], limit_bytes: int) -> MemoryPlan:
    """The smallest plan; ScheduleError if it takes more than ``limit_bytes``."""
    return _within(_placed(buffers, by_life=True), buffers, limit_bytes)


def plan_without_reuse(buffers: Sequence[Buffer], limit_bytes: int) -> MemoryPlan:
    """The plan in which every buffer has a place of its own, for comparison."""
    return _within(_placed(buffers, by_life=False), buffers, limit_bytes)


def aligned(offset_bytes: int, alignment_bytes: int) -> int:
    """The first multiple of the alignment that is not below the offset."""
    return -(-offset_bytes // alignment_bytes) * alignment_bytes


def _placed(buffers: Sequence[Buffer], by_life: bool) -> MemoryPlan:
    offsets: dict[str, int] = {}
    placed: list[Buffer] = []
    for buffer in buffers:
        others = [b for b in placed if not by_life or b.meets(buffer)]
        offset = 0
        for other in sorted(others, key=lambda b: offsets[b.name]):
            if offset + buffer.size_bytes <= offsets[other.name]:
                break
            offset = max(
                offset, aligned(offsets[other.name] + other.size_bytes, buffer.alignment_bytes)
            )
        offsets[buffer.name] = offset
        placed.append(buffer)
    total = max((offsets[b.name] + b.size_bytes for b in buffers), default=0)
    return MemoryPlan(offsets, total, is_optimal=False)


def _within(plan: MemoryPlan, buffers: Sequence[Buffer], limit_bytes: int) -> MemoryPlan:
    if plan.total_bytes <= limit_bytes:
        return plan
    largest = sorted(buffers, key=lambda b: (-b.size_bytes, b.name))[:3]
    raise ScheduleError(
        f"{plan.total_bytes} bytes of shared memory, and a block has {limit_bytes}",
        why="the largest: " + ", ".join(f"{b.name} of {b.size_bytes} bytes" for b in largest),
        repair="take smaller tiles or fewer stages",
    )
