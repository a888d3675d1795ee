"""Blocks that stay: each takes one place of the grid after another.

A block that begins makes its barriers and waits for its first tiles, and nothing else runs on the
SM where it takes all of the memory. With the launch option ``blocks N`` the grid has N blocks, as
many as the GPU holds at once, and the warps that fetch run ahead from one place to the next
("persistent" kernels). The places are dealt out in rounds, every second one backwards, so that
places whose work gets less from first to last make the same sum for all blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from mirage_py.codegen.cuda.emission import Emission
from mirage_py.codegen.cuda.grid_positions import grid_positions
from mirage_py.errors import ScheduleError

BLOCKS = "blocks"


def blocks_asked(value: str) -> int:
    """The number of blocks that the launch option asks for; 0 where it is empty. Raises
    ScheduleError.
    """
    if value and not value.isdigit():
        raise ScheduleError(f"{BLOCKS} '{value}'", repair="say how many, or leave the option out")
    return int(value or "0")


class Places:
    """Writes the loop over the places of a block, of ``blocks`` in all. ``uneven`` are the
    dimensions along which places have loops of different lengths.
    """

    def __init__(self, emission: Emission, blocks: int, uneven: Collection[str]) -> None:
        self.out = emission
        self.blocks = blocks
        self.uneven = uneven
        # The number of the round, as text.
        self.round = ""

    @contextmanager
    def each(self) -> Iterator[None]:
        """What is written inside is done for each place, with its positions."""
        out = self.out
        count, all_places = self.blocks, out.facts.tiling.grid_blocks
        self.round, place = out.fresh("round"), out.fresh("place")
        number = f"{self.round} * {count} + "
        if self.uneven:
            number += f"({self.round} & 1 ? {count - 1} - (int)blockIdx.x : (int)blockIdx.x)"
        else:
            number += "(int)blockIdx.x"
        rounds = -(-all_places // count)
        out.line("#pragma unroll 1")
        with out.indented(f"for (int {self.round} = 0; {self.round} < {rounds}; ++{self.round})"):
            out.line(f"const int {place} = {number};")
            if all_places % count:
                out.line(f"if ({place} >= {all_places}) break;")
            grid_positions(out, self.uneven, place)
            yield
