"""The load of a tiled kernel on a target under launch options, without constants of the model.

Most of it does not depend on pipeline depths, of which ranking tries many with the same warps: that
part is computed once (``WarpedKernel``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mirage_py.search.model.access_cost import Accesses
from mirage_py.search.model.footprint import (
    MMA_COLUMNS,
    MMA_ROWS,
    WARP_GROUP_ROWS,
    Footprint,
    SharedMemory,
    is_on_tensor_cores,
    is_pipelined,
    is_rounded,
    is_split,
    is_warp_group_dot,
    plain_warps,
    shared_memory,
    warp_groups_across,
)
from mirage_py.search.tilings.tiled_kernel import Dot, SectionWork, TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F16, F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# An SM has four quarters, each with tensor cores and plain cores of its own.
QUARTERS = 4
# Of an operand that is rounded or split: operations for an element, and how often matmuls read the
# latter; operations to add an element of the result.
_SPLIT_OPS, _SPLIT_READS, _ADDED_OPS = 4.0, 3.0, 3.0
# Instructions for a code of four bits that need no subtraction: in machine code of 64 outputs and
# 16 rows a loop has 464 in place of 562, for 256 codes a thread.
_EXCESS_SAVES = 0.4
_TF32_DURATION = 2.0
# wgmma takes columns of float32 along the inner positions alone. Where they lie across, a store of
# a part of them has bank conflicts: as many bytes for each element, by the columns of the tile.
_TURNED_BYTES, _FEW_COLUMNS, _FEW_TURNED_BYTES = 64.0, 64, 22.0
# Operations per element of a computed matmul operand: converted, combined, rounded, ...
_COMPUTED_OPS = 5.0


@dataclass(frozen=True, slots=True)
class SectionLoad:
    """The load of one iteration of a section in one block under given launch options.

    ``group_flops`` run as wgmma; ``plain_flops`` as other MMAs, with what warps compute twice or
    leave idle; both count as those of halves that take as long. ``multiply_adds`` are those of
    matmuls on CUDA cores. Of ``sums`` over a tile ``late_sums`` more wait for the end of the loop.
    """

    iterations: float
    group_flops: float
    plain_flops: float
    multiply_adds: float
    operand_bytes: float
    vector_ops: float
    reduced: int
    barriers: int
    sums: int
    late_sums: int
    cache_bytes: float
    stalls: bool


@dataclass(frozen=True, slots=True)
class KernelLoad:
    """A tiled kernel under given launch options: all that its time follows from.

    ``slots`` has for each section the number of buffers that loads run ahead by, 0 where nothing
    does.
    ``per_sm`` blocks share an SM in each of ``waves``; ``moved_bytes`` cross the memory bus. So
    many blocks form a cluster, 1 where there are none. The ``accesses`` are those of a
    pointwise kernel that moves many times what the L2 holds.
    """

    footprint: Footprint
    blocks: int
    resident: int
    per_sm: int
    waves: int
    num_warps: int
    moved_bytes: int
    sections: tuple[SectionLoad, ...]
    slots: tuple[int, ...]
    cluster_blocks: int = 1
    accesses: Accesses | None = None

    @property
    def is_straight(self) -> bool:
        """Whether it has neither loops nor matmuls."""
        return all(
            s.iterations == 1 and not s.group_flops + s.plain_flops + s.multiply_adds
            for s in self.sections
        )


class WarpedKernel:
    """A tiled kernel with the warps and flags of some options, its pipelines of any depth. A thread
    takes so many ``registers``.
    """

    def __init__(
        self, kernel: TiledKernel, options: LaunchConfig, target: Target, registers: int
    ) -> None:
        self._kernel = kernel
        self._options = options
        self._target = target
        self._registers = registers

    def footprint(self, num_stages: Sequence[int]) -> Footprint:
        """What one block needs; no shared memory is counted where its registers do not fit."""
        own = self._registers
        fits = own <= self._target.max_registers_per_thread
        return Footprint(self._shared.bytes(num_stages) if fits else 0, own)

    @cached_property
    def sections(self) -> tuple[SectionLoad, ...]:
        """What each section asks of one block."""
        deferred = self._kernel.deferred(self._options.num_warps)
        return tuple(
            _section_load(work, sum(n in deferred for n in work.sums), self._options, self._target)
            for work in self._kernel.work(self._options)
        )

    def slots(self, num_stages: Sequence[int]) -> tuple[int, ...]:
        """Buffers that the loads of each section run ahead by; a loop of one iteration is none."""
        depths = iter(num_stages)
        found = []
        for work in self._kernel.work(self._options):
            depth = next(depths, 1) if work.is_loop else 1
            found.append(depth - 1 if work.iterations > 1 else 0)
        return tuple(found)

    @cached_property
    def _shared(self) -> SharedMemory:
        return shared_memory(self._kernel, self._options, self._target)


def _section_load(
    work: SectionWork, late_sums: int, options: LaunchConfig, target: Target
) -> SectionLoad:
    warps = options.num_warps
    group_flops = plain_flops = multiply_adds = 0.0
    operand_bytes = split_ops = saved = 0.0
    turn = -1 if options.reversed_axes else 1
    plain, sides = [], []
    for dot in work.dots:
        rows, columns = dot.sides[::turn]
        inner = dot.multiplications // (rows * columns)
        if dot.codes_bytes:
            # Each is read once, by the warp that multiplies it with all of the other operand.
            coded, other = dot.sides[dot.codes_side], dot.sides[1 - dot.codes_side]
            across = min(max(1, warps // dot.codes_shares), max(1, coded // MMA_ROWS))
            operand_bytes += dot.codes_bytes + across * dot.dtype.bytes * inner * other
            plain_flops += 2.0 * max(rows, MMA_ROWS) * max(columns, MMA_COLUMNS) * inner
            if options.excess_codes:
                plain_flops += 2.0 * MMA_ROWS * max(other, MMA_COLUMNS) * inner
                saved += _EXCESS_SAVES * coded * inner
            continue
        if is_split(dot, options):
            split_ops += _ADDED_OPS * rows * columns
        if is_warp_group_dot(dot, options, target):
            flops = 2.0 * _duration(dot, options) * dot.multiplications
            # The columns are read again for every 64 rows.
            groups = -(-rows // WARP_GROUP_ROWS)
            read: float = inner * groups * (WARP_GROUP_ROWS + columns)
            if is_rounded(dot, options):
                # Warp groups side by side each split the same rows, and take twice as long.
                beside = warp_groups_across(rows, warps)
                flops *= beside
                split_ops += _SPLIT_OPS * inner * (beside * rows + columns)
                # Columns, or their parts, are written first; of parts three matmuls read.
                again, parts = (_SPLIT_READS, 2) if is_split(dot, options) else (1.0, 1)
                read = again * read + parts * inner * columns
                if dot.across[::turn][1]:
                    turned = _FEW_TURNED_BYTES if columns <= _FEW_COLUMNS else _TURNED_BYTES
                    operand_bytes += parts * turned * inner * columns
            group_flops += flops
            operand_bytes += dot.dtype.bytes * read
        else:
            plain.append((dot, inner, dot.operands[::turn]))
            sides.append((rows, columns))
    repeats = 1
    # An operand of several matmuls is read once.
    fragments: dict[tuple[int, bool], float] = {}
    for (dot, inner, operands), (rows, columns), shares in zip(
        plain, sides, joined_warps(sides, warps), strict=True
    ):
        tile = warp_tile(rows, columns, shares)
        if is_on_tensor_cores(dot, options):
            done = tile[0] * tile[1] * inner * max(QUARTERS, warps)
            plain_flops += 2.0 * _duration(dot, options) * done
        else:
            multiply_adds += dot.multiplications
        for side, extent in enumerate(tile):
            fragments[operands[side], side == 0] = dot.dtype.bytes * inner * extent
            if is_rounded(dot, options) or is_split(dot, options):
                split_ops += _SPLIT_OPS * warps * inner * extent
        repeats = max(repeats, shares[1])
    operand_bytes += warps * sum(fragments.values())
    # Warps that share out the inner positions of codes wait for no other.
    alone = sum(bool(d.codes_bytes) and warps <= d.codes_shares for d in work.dots)
    # Warps along the columns each compute the same rows.
    vector_ops = work.vector_ops + _COMPUTED_OPS * work.computed * (repeats - 1) + split_ops - saved
    return SectionLoad(
        iterations=work.iterations,
        group_flops=group_flops,
        plain_flops=plain_flops,
        multiply_adds=multiply_adds,
        operand_bytes=operand_bytes,
        vector_ops=vector_ops,
        reduced=work.reduced,
        barriers=work.barriers - alone,
        sums=len(work.sums) - late_sums,
        late_sums=late_sums,
        cache_bytes=work.cache_bytes,
        # Rows of mma.sync that lie side by side in memory are no asynchronous copy either.
        stalls=bool(plain and turn < 0) or not all(is_pipelined(b, warps) for b in work.loads),
    )


def _duration(dot: Dot, options: LaunchConfig) -> float:
    """How much longer a matmul on tensor cores takes than one of halves."""
    if dot.dtype != F32:
        return dot.dtype.bytes / F16.bytes
    return _TF32_DURATION * (3.0 if is_split(dot, options) else 1.0)


def joined_warps(sides: Sequence[tuple[int, int]], num_warps: int) -> list[tuple[int, int]]:
    """Warps of the matmuls of a section, by their rows and columns."""
    if not sides:
        return []
    if len(set(sides)) > 1:
        rows, columns = max(sides, key=lambda side: (min(side), max(side)))
        shared = (num_warps, 1) if rows >= columns else (1, num_warps)
        return [shared for _ in sides]
    return [plain_warps(rows, columns, num_warps) for rows, columns in sides]


def warp_tile(rows: int, columns: int, warps: tuple[int, int]) -> tuple[float, float]:
    """What one warp computes: never less than an instruction, so warps may do the same."""
    return max(MMA_ROWS, rows / warps[0]), max(MMA_COLUMNS, columns / warps[1])
