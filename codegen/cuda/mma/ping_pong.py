"""Ping-pong scheduling: warp groups alternate on the tensor cores.

Without an order all groups of a block reach their matmuls at the same time, and their exponentials
too, so one of the two units is always idle. In FlashAttention-3 (Shah et al., 2024, section 3.1)
each group waits at a named barrier until the group before it has issued its matmuls. The launch
option ``turns`` requests it, in loops with MMA/softmax overlap.
"""

from __future__ import annotations

from mirage_py.codegen.cuda.writer.emission import Emission

# Barriers of the groups, after the block's own (0) and that of the warps that compute (1).
_FIRST_BARRIER = 2
_GROUP_WARPS = 4
# At each barrier one group waits for another.
_THREADS = 2 * 32 * _GROUP_WARPS


class PingPong:
    """Writes who waits for whom; nothing where the option is off or one group computes."""

    def __init__(self, emission: Emission) -> None:
        self.out = emission
        self._groups = emission.options.num_warps // _GROUP_WARPS
        self._is_asked = emission.options.ping_pong and self._groups > 1
        self._is_on = False
        # Whether loops come again and again, and turns go on from one to the next.
        self._go_on = False

    def begin_work_tiles(self, is_pipelined: bool) -> None:
        """Before all work tiles of a persistent block: what one group still has to do at one
        keeps no other one from beginning at the next.
        """
        self._go_on = is_pipelined and self._is_asked
        if self._go_on:
            self._give_first()

    def end_work_tiles(self) -> None:
        """After all work tiles."""
        if self._go_on:
            self._take_last()

    def begin(self, is_pipelined: bool) -> None:
        """Before a loop: the first turn is the first group's."""
        self._is_on = is_pipelined and self._is_asked
        if self._is_on and not self._go_on:
            self._give_first()

    def wait(self) -> None:
        """Before matmuls: until the group before has begun its own."""
        if self._is_on:
            self.out.line(f"named_barrier({_FIRST_BARRIER} + (warp >> 2), {_THREADS});")

    def pass_on(self) -> None:
        """After them: the next group's turn."""
        if self._is_on:
            following = f"((warp >> 2) + 1) % {self._groups}"
            if self._groups == 2:
                following = "(warp >> 2 ^ 1)"
            self.out.line(f"named_arrive({_FIRST_BARRIER} + {following}, {_THREADS});")

    def end(self) -> None:
        """After the loop: the first group takes the turn that nobody needs, so that the barrier is
        as it was.
        """
        if self._is_on and not self._go_on:
            self._take_last()
        self._is_on = False

    def _give_first(self) -> None:
        last = _GROUP_WARPS * (self._groups - 1)
        self.out.line(f"if (warp >= {last}) named_arrive({_FIRST_BARRIER}, {_THREADS});")

    def _take_last(self) -> None:
        self.out.line(f"if (warp < {_GROUP_WARPS}) named_barrier({_FIRST_BARRIER}, {_THREADS});")
