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
    pointwise kernel that moves many times what the L2 holds. In a persistent kernel the tiles of
    the next block come while results are stored.
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
    is_persistent: bool = False

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
    matmuls = _Matmuls(work.dots, options, target)
    # Warps that share out the inner positions of codes wait for no other.
    alone = sum(bool(d.codes_bytes) and warps <= d.codes_shares for d in work.dots)
    # Warps along the columns each compute the same rows.
    computed = _COMPUTED_OPS * work.computed * (matmuls.repeats - 1)
    return SectionLoad(
        iterations=work.iterations,
        group_flops=matmuls.group_flops,
        plain_flops=matmuls.plain_flops,
        multiply_adds=matmuls.multiply_adds,
        operand_bytes=matmuls.operand_bytes,
        vector_ops=work.vector_ops + computed + matmuls.split_ops - matmuls.saved,
        reduced=work.reduced,
        barriers=work.barriers - alone,
        sums=len(work.sums) - late_sums,
        late_sums=late_sums,
        cache_bytes=work.cache_bytes,
        # Rows of mma.sync that lie side by side in memory are no asynchronous copy either.
        stalls=bool(matmuls.has_plain and options.reversed_axes)
        or not all(is_pipelined(b, warps) for b in work.loads),
    )


class _Matmuls:
    """What the matmuls of a section ask of one block: of tensor cores by warp groups and by warps,
    of CUDA cores, and of shared memory; ``repeats`` warps compute the same rows.
    """

    def __init__(self, dots: Sequence[Dot], options: LaunchConfig, target: Target) -> None:
        self._options = options
        self._turn = -1 if options.reversed_axes else 1
        self.group_flops = self.plain_flops = self.multiply_adds = 0.0
        self.operand_bytes = self.split_ops = self.saved = 0.0
        self.repeats = 1
        plain = []
        for dot in dots:
            rows, columns = dot.sides[:: self._turn]
            if dot.codes_bytes:
                self._add_codes(dot, rows, columns)
                continue
            if is_split(dot, options):
                self.split_ops += _ADDED_OPS * rows * columns
            if is_warp_group_dot(dot, options, target):
                self._add_of_warp_groups(dot, rows, columns)
            else:
                plain.append((dot, (rows, columns)))
        self.has_plain = bool(plain)
        self._add_plain(plain)

    def _add_codes(self, dot: Dot, rows: int, columns: int) -> None:
        """Each is read once, by the warp that multiplies it with all of the other operand."""
        inner = dot.multiplications // (rows * columns)
        coded, other = dot.sides[dot.codes_side], dot.sides[1 - dot.codes_side]
        shares = self._options.num_warps // dot.codes_shares
        across = min(max(1, shares), max(1, coded // MMA_ROWS))
        self.operand_bytes += dot.codes_bytes + across * dot.dtype.bytes * inner * other
        self.plain_flops += 2.0 * max(rows, MMA_ROWS) * max(columns, MMA_COLUMNS) * inner
        if self._options.excess_codes:
            self.plain_flops += 2.0 * MMA_ROWS * max(other, MMA_COLUMNS) * inner
            self.saved += _EXCESS_SAVES * coded * inner

    def _add_of_warp_groups(self, dot: Dot, rows: int, columns: int) -> None:
        options, inner = self._options, dot.multiplications // (rows * columns)
        flops = 2.0 * _duration(dot, options) * dot.multiplications
        # The columns are read again for every 64 rows.
        groups = -(-rows // WARP_GROUP_ROWS)
        read: float = inner * groups * (WARP_GROUP_ROWS + columns)
        if is_rounded(dot, options):
            # Warp groups side by side each split the same rows, and take twice as long.
            beside = warp_groups_across(rows, options.num_warps)
            flops *= beside
            self.split_ops += _SPLIT_OPS * inner * (beside * rows + columns)
            # Columns, or their parts, are written first; of parts three matmuls read.
            again, parts = (_SPLIT_READS, 2) if is_split(dot, options) else (1.0, 1)
            read = again * read + parts * inner * columns
            if dot.across[:: self._turn][1]:
                turned = _FEW_TURNED_BYTES if columns <= _FEW_COLUMNS else _TURNED_BYTES
                self.operand_bytes += parts * turned * inner * columns
        self.group_flops += flops
        self.operand_bytes += dot.dtype.bytes * read

    def _add_plain(self, dots: Sequence[tuple[Dot, tuple[int, int]]]) -> None:
        """By single warps, on tensor cores or not."""
        options, warps = self._options, self._options.num_warps
        # An operand of several matmuls is read once.
        fragments: dict[tuple[int, bool], float] = {}
        joined = joined_warps([sides for _, sides in dots], warps)
        for (dot, (rows, columns)), shares in zip(dots, joined, strict=True):
            inner = dot.multiplications // (rows * columns)
            tile = warp_tile(rows, columns, shares)
            if is_on_tensor_cores(dot, options):
                done = tile[0] * tile[1] * inner * max(QUARTERS, warps)
                self.plain_flops += 2.0 * _duration(dot, options) * done
            else:
                self.multiply_adds += dot.multiplications
            operands = dot.operands[:: self._turn]
            for side, extent in enumerate(tile):
                fragments[operands[side], side == 0] = dot.dtype.bytes * inner * extent
                if is_rounded(dot, options) or is_split(dot, options):
                    self.split_ops += _SPLIT_OPS * warps * inner * extent
            self.repeats = max(self.repeats, shares[1])
        self.operand_bytes += warps * sum(fragments.values())


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
