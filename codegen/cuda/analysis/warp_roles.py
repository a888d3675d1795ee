"""Warp roles: the consumer warps that compute, and the producer warps that issue TMA loads.

A block with a producer has more threads than compute. An SM allocates registers by groups of four
warps, so one more warp costs as much as a group. From two consumer groups on, the producer is a
whole warp group, which gives most of its registers to the others (``setmaxnreg`` applies to a whole
warp group). Beside a single consumer group it is one only if its idle warps have work
(``row_reductions.py``); then an SM holds two such blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

_REGISTERS = 65536
_MOST_REGISTERS = 240
_GRANULE = 8
_GROUP_THREADS = 128


@dataclass(frozen=True, slots=True)
class WarpRoles:
    """The threads of a block, for ``num_warps`` that compute; ``has_work``: all warps of a group
    that fetches have something to do.
    """

    num_warps: int
    has_producer: bool = False
    has_work: bool = False

    @property
    def groups(self) -> int:
        """Warp groups that compute."""
        return self.num_warps // 4

    @property
    def threads(self) -> int:
        """All threads of the block."""
        if not self.has_producer:
            return 32 * self.num_warps
        more = 4 if self.registers is not None else 1
        return 32 * (self.num_warps + more)

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers of a producer thread and of a consumer thread; None: all have the same."""
        if not self.has_producer or self.groups < (1 if self.has_work else 2):
            return None
        all_threads = _GROUP_THREADS * (self.groups + 1) * self.blocks
        each = _REGISTERS // all_threads // _GRANULE * _GRANULE
        few = 40 if self.groups <= 2 else 24
        many = (each * (self.groups + 1) - few) // self.groups // _GRANULE * _GRANULE
        return few, min(_MOST_REGISTERS, many)

    @property
    def bounds(self) -> str:
        """Of ``__launch_bounds__``; registers change hands only where all blocks of an SM are
        known.
        """
        return f"{self.threads}{'' if self.registers is None else f', {self.blocks}'}"

    @property
    def blocks(self) -> int:
        """Blocks of an SM where registers change hands."""
        return 2 if self.groups == 1 else 1

    @property
    def is_issuer(self) -> str:
        """C condition of the thread that issues TMA loads."""
        return f"threadIdx.x == {32 * self.num_warps if self.has_producer else 0}"

    @property
    def barrier_call(self) -> str:
        """Where those that compute meet."""
        return (
            f"named_barrier(1, {32 * self.num_warps});" if self.has_producer else "__syncthreads();"
        )
