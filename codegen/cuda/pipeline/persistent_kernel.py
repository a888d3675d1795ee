"""A persistent kernel: as many blocks as the GPU holds at once, each taking one work tile after
another.

Otherwise a starting block initialises its barriers and waits for its first tiles while nothing else
runs on the SM, if it takes all of the memory. With the launch option ``blocks N`` the grid has N
blocks, and the producer warps run ahead from one work tile to the next. Work tiles are assigned
round-robin, or, where masks make them unequal, by a table made at compile time
(``plan/tile_scheduler.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.cuda.writer.grid_positions import grid_positions


class WorkTiles:
    """Writes the loop over the work tiles of a block."""

    def __init__(self, emission: Emission) -> None:
        self.out = emission
        self.blocks = emission.plan.grid
        self.uneven = emission.plan.uneven
        # The number of the round, as text.
        self.round = ""
        self._all = emission.facts.tiling.grid_blocks
        self._table = ""

    def begin(self) -> None:
        """At the head of the kernel: who takes what, where that is no simple rule."""
        dealt = self.out.plan.work_tiles
        if not dealt:
            return
        rounds = range(max(map(len, dealt)) + 1)
        numbers = [own[r] if r < len(own) else self._all for r in rounds for own in dealt]
        self._table = self.out.fresh("places")
        self.out.comment(
            "The places of the blocks, round by round; behind its last a block has none."
        )
        text = ", ".join(map(str, numbers))
        self.out.line(f"static const unsigned short {self._table}[] = {{{text}}};")

    @contextmanager
    def each(self) -> Iterator[None]:
        """What is written inside is done for each work tile, with its positions."""
        out = self.out
        self.round, place = out.fresh("round"), out.fresh("place")
        step = f"{place} += {self.blocks}"
        first, following = "(int)blockIdx.x", ""
        if self._table:
            first, following = f"{self._table}[(int)blockIdx.x]", out.fresh("next_place")
            step = f"{place} = {following}"
            out.line(f"int {following};")
        out.line(f"int {self.round} = 0;")
        out.line("#pragma unroll 1")
        with out.indented(
            f"for (int {place} = {first}; {place} < {self._all}; {step}, ++{self.round})"
        ):
            if following:
                at = f"({self.round} + 1) * {self.blocks} + (int)blockIdx.x"
                out.line(f"{following} = {self._table}[{at}];")
            grid_positions(out, self.uneven, place, is_ordered=bool(self._table))
            yield
