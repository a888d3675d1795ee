"""Plans of causal attention of a prompt with given tiles and launch options: what the ranking
chooses among, each written down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mirage_py
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.stabilize.safe import SafetyScreen
from mirage_py.ugraph.ir.launch_choices import (
    Arch,
    BlockOrder,
    OverlapMode,
    RescalingMode,
    StoreMode,
)
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.threads import with_threads
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, UGraph

HEADS, GROUPS = 32, 8
_TEXT = """
B = 1, H = 32, G = 8, T = {tokens}, D = {width}
Q[B, H, T, D], K[B, G, T, D], V[B, G, T, D] : bf16
let scores[b, h, t, s] = sum[d](Q[b, h, t, d] * K[b, h // (H / G), s, d]) / sqrt(D)
let seen[b, h, t, s] = where({seen}, scores[b, h, t, s], -inf)
O[b, h, t, e] = sum[s]( softmax[s](seen[b, h, t, s]) * V[b, h // (H / G), s, e] )
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """Prompts of ``tokens`` with heads of ``width``, that see all before them or a ``window``."""

    width: int
    tokens: int
    window: int | None = None

    @property
    def name(self) -> str:
        """Head size and tokens, and the window if there is one."""
        return f"{self.width}x{self.tokens}" + (f"w{self.window}" if self.window else "")

    @property
    def program(self) -> Program:
        """The attention of a cell."""
        seen = "s <= t" if self.window is None else f"t - {self.window} < s <= t"
        return mirage_py.parse(_TEXT.format(tokens=self.tokens, width=self.width, seen=seen))

    @property
    def flops(self) -> int:
        """Of both products, masked positions left out."""
        most = min(self.window or self.tokens, self.tokens)
        pairs = most * (most + 1) // 2 + (self.tokens - most) * most
        return 4 * HEADS * self.width * pairs


CELLS = (
    *(Cell(128, 1024 << n) for n in range(5)),
    *(Cell(64, 1024 << n) for n in range(5)),
    Cell(256, 1024), Cell(256, 4096), Cell(256, 16384),
    Cell(128, 4096, 128), Cell(128, 4096, 1024), Cell(64, 4096, 128), Cell(128, 16384, 1024),
)  # fmt: skip


@cache
def family(cell: Cell) -> UGraph:
    """The one kernel with one loop over the keys, its tiles open."""
    found = search(normalise(cell.program), limits=SearchLimits(max_kernels=1))
    for ugraph in SafetyScreen().stable(found.families):
        block = ugraph.kernels[0]
        if isinstance(block, BlockGraph) and not block.cluster_dims and len(ugraph.kernels) == 1:
            loops = [s.loop for s in block.sections if s.loop is not None]
            if loops == ["s"] and {a.dim for a in block.grid} == set("bhte"):
                return ugraph
    raise LookupError(f"the search found no such kernel for {cell}")


@dataclass(frozen=True, slots=True)
class Variant:
    """``rows`` of a head in a block, ``keys`` in an iteration, and how the kernel is launched."""

    name: str
    rows: int
    keys: int
    stages: int
    late: OverlapMode | None = OverlapMode.ACROSS
    turns: bool = True
    stays: bool = True
    order: BlockOrder | None = BlockOrder.LONGEST
    rescaling: RescalingMode = RescalingMode.LAZY

    def plan(self, cell: Cell) -> Plan:
        """The plan for a cell, each warp with 16 rows."""
        ugraph = family(cell)
        (block,) = ugraph.kernels
        assert isinstance(block, BlockGraph)
        tiles = {"e": cell.width, "t": self.rows, "b": 1, "h": 1}
        sections = tuple(
            s if s.loop is None else replace(s, tile=self.keys) for s in block.sections
        )
        grid = tuple(GridAxis(d, tile) for d, tile in tiles.items())
        tiled = with_threads(replace(block, grid=grid, sections=sections))
        options = LaunchConfig(
            self.rows // 16,
            (self.stages,),
            arch=Arch.SM_90A,
            producer_warps=True,
            early_start=True,
            evict_first=("Q",),
            overlap=self.late,
            ping_pong=self.turns and self.late is not None and self.rows > 64,
            persistent_blocks=132 if self.stays and self.rows > 64 else 0,
            block_order=self.order,
            rescaling=self.rescaling,
            stores=StoreMode.LANES,
        )
        return Plan(replace(ugraph, kernels=(tiled,)), (options,), "cuda")


def variants(cell: Cell) -> Iterator[Variant]:
    """The variants that are worth measuring for a cell."""
    deep = {64: 4, 128: 3, 256: 2}[cell.width]
    if cell.window is not None:
        yield from _of_windows(cell.width)
        return
    usual = Variant("usual", 128, 64 if cell.width == 256 else 128, deep)
    yield usual
    yield _but(usual, "grouped order", order=BlockOrder.GROUPED)
    yield _but(usual, "no turns", turns=False)
    yield _but(usual, "late on", late=OverlapMode.ON)
    yield _but(usual, "not late", late=None)
    yield _but(usual, "leaves", stays=False)
    if cell.width == 64:
        yield _but(usual, "optimistic", rescaling=RescalingMode.OPTIMISTIC)
        yield _but(usual, "256 keys", keys=256, stages=2)
        yield _but(usual, "64 keys", keys=64)
        yield _but(usual, "64 rows", rows=64, stages=2)
        yield _but(usual, "64 rows, not late", rows=64, stages=2, late=None)
        yield _but(usual, "256 rows, 64 keys", rows=256, keys=64)
    elif cell.width == 128:
        yield _but(usual, "64 rows", rows=64, stages=2)
        yield _but(usual, "64 rows, 64 keys, not late", rows=64, keys=64, late=None)
    else:
        yield _but(usual, "64 rows", rows=64)


def _of_windows(width: int) -> Iterator[Variant]:
    usual = Variant("usual", 128, 128, 2, order=None)
    yield usual
    yield _but(usual, "leaves", stays=False)
    yield _but(usual, "grouped order", order=BlockOrder.GROUPED)
    yield _but(usual, "64 rows", rows=64, keys=128 if width == 64 else 64)
    yield _but(usual, "64 rows, 64 keys, not late", rows=64, keys=64, late=None)
    yield _but(usual, "64 rows, not late", rows=64, late=None)
    yield _but(usual, "64 keys", keys=64, stages=3)
    yield _but(usual, "64 keys, leaves", keys=64, stages=3, stays=False)


def _but(variant: Variant, name: str, **other: Any) -> Variant:
    return replace(variant, name=name, **other)
