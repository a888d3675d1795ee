"""Estimated shared memory and registers of a tiled kernel, before anything is compiled.

The rules are those seen in Triton's TTGIR: loads of a loop become asynchronous copies into a ring
of buffers if each thread moves at least 4 bytes; the ring has num_stages slots if the matmul is a
wgmma (64 rows and 4 warps on sm_90) and one less otherwise. A wgmma takes computed rows from
registers, and everything else from shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.plan.promotion import SLICE_BITS
from mirage_py.search.tilings.tiled_kernel import Dot, TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.launch_choices import MatmulInstruction, Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# Values a thread holds besides tiles: addresses, masks, loop state.
_BASE_REGISTERS = 40
# The same of a warp group that a producer feeds: 16 warps of attention have 112 registers a thread
# (128 rows of 64 columns, 64 keys), and none is spilt.
_FED_REGISTERS = 24
_MIN_COPY_BYTES = 4
_SCRATCH_BYTES_PER_WARP = 512
WARP_GROUP_ROWS = 64
# Of an instruction of one warp.
MMA_ROWS, MMA_COLUMNS = 16, 8
# Half registers for each element of a split operand.
_SPLIT_REGISTERS = 3
_WARP_GROUP = 4


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one block needs."""

    smem_bytes: int
    registers_per_thread: int


def is_on_tensor_cores(dot: Dot, options: LaunchConfig) -> bool:
    """Whether a matmul is not one of multiply-adds, as of exact float32."""
    return dot.dtype != F32 or options.precision in (Precision.TF32, Precision.TF32X3)


def is_split(dot: Dot, options: LaunchConfig) -> bool:
    """Whether each operand goes to tensor cores as two numbers of TF32."""
    return dot.dtype == F32 and options.precision is Precision.TF32X3


def is_rounded(dot: Dot, options: LaunchConfig) -> bool:
    """Whether operands of float32 go through registers on their way, as they do in Triton to be
    rounded to TF32 or split. CUDA kernels say by which instruction they multiply; for wgmma TMA
    rounds.
    """
    in_tf32 = dot.dtype == F32 and is_on_tensor_cores(dot, options)
    return in_tf32 and options.matmul is None


def is_warp_group_dot(dot: Dot, options: LaunchConfig, target: Target) -> bool:
    """Whether a matmul on tensor cores has the 64 rows that wgmma needs. Of float32 CUDA kernels
    have none, which say so.
    """
    if target.capability < 90 or options.num_warps < _WARP_GROUP or dot.codes_bytes:
        return False
    if dot.dtype == F32 and options.matmul is MatmulInstruction.MMA:
        return False
    is_tall = dot.rows(options.reversed_axes) >= WARP_GROUP_ROWS
    return is_tall and is_on_tensor_cores(dot, options)


def is_pipelined(tile_bytes: int, num_warps: int) -> bool:
    """Whether a load in a loop can be an asynchronous copy."""
    return tile_bytes >= _MIN_COPY_BYTES * 32 * num_warps


@dataclass(frozen=True, slots=True)
class SectionMemory:
    """Shared memory of one section: ``bytes`` in any case, and ``slot_bytes`` for each buffer of a
    ring of loads. There are as many buffers as stages where matmuls are ``wide`` (wgmma), one less
    elsewhere.
    """

    is_loop: bool
    bytes: int
    slot_bytes: int
    wide: bool


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Shared memory of one block, for pipelines of any depth. ``kept_bytes`` stay all through."""

    kept_bytes: int
    sections: tuple[SectionMemory, ...]

    def bytes(self, num_stages: Sequence[int]) -> int:
        """With so many stages in each loop."""
        peak = 0
        depths = iter(num_stages)
        for section in self.sections:
            ring = section.bytes
            if section.is_loop:
                depth = next(depths, 1)
                ring += max(1, depth if section.wide else depth - 1) * section.slot_bytes
            peak = max(peak, ring)
        return self.kept_bytes + peak


def shared_memory(kernel: TiledKernel, options: LaunchConfig, target: Target) -> SharedMemory:
    """Shared memory of one block under these options, whatever their numbers of stages."""
    sections = []
    for number, work in enumerate(kernel.work(options)):
        # A computed operand may have to pass through shared memory to change its layout.
        passing = max((d.dtype.bytes for d in work.dots), default=2)
        passing *= work.computed - _in_registers(kernel, number, options, target)
        groups = [d for d in work.dots if is_warp_group_dot(d, options, target)]
        # Columns that were rounded, or their parts, go back there.
        rounded = [d for d in groups if is_rounded(d, options)]
        for dot in rounded:
            parts = 2 if is_split(dot, options) else 1
            passing += parts * dot.dtype.bytes * _operand_elements(dot, options)[1]
        sections.append(
            SectionMemory(
                work.is_loop,
                passing + work.exchanged_bytes,
                sum(b for b in work.loads if is_pipelined(b, options.num_warps)),
                # Of CUDA kernels all buffers are in use, and those of codes are no others'.
                len(groups) > len(rounded) or any(d.codes_bytes for d in work.dots),
            )
        )
    kept = sum(work.kept_bytes for work in kernel.work(options))
    return SharedMemory(kept + _SCRATCH_BYTES_PER_WARP * options.num_warps, tuple(sections))


def _in_registers(kernel: TiledKernel, section: int, options: LaunchConfig, target: Target) -> int:
    """Elements of computed operands that a wgmma takes from registers: its rows."""
    if not kernel.sections[section].computed:
        return 0
    order = kernel.body.order[:: -1 if options.reversed_axes else 1]
    found = set()
    for number in kernel.block.sections[section].nodes:
        dot = kernel.dots.get(number)
        if dot is None or not is_warp_group_dot(dot, options, target):
            continue
        roles = kernel.tiling.roles(number)
        first, second = kernel.block.nodes[number].args
        left, right = min(map(order.index, roles.left)), min(map(order.index, roles.right))
        rows = first if left < right else second
        if kernel.block.nodes[rows].op != "load":
            found.add(rows)
    return sum(kernel.elements[n] for n in found)


def registers(kernel: TiledKernel, options: LaunchConfig, target: Target) -> int:
    """Registers of one thread.

    Accumulators live all through their loop; the largest values of each section come on top, and
    the parts of split operands.
    """
    nodes, elements = kernel.block.nodes, kernel.elements
    num_warps = options.num_warps
    # Behind a producer a thread adds up what it has itself, and has few addresses.
    is_fed = options.producer_warps and kernel.body.has_loop_sums
    base = _FED_REGISTERS if is_fed else _BASE_REGISTERS
    deferred = {} if is_fed else kernel.deferred(num_warps)
    summed = {a: nodes[s].args[0] for s, a in deferred.items()}
    most = carried = 0
    for work in kernel.work(options):
        held = sum(elements[summed.get(a, a)] for a in work.accumulators)
        # Warps that share out the inner positions have sums of their own.
        held *= min(num_warps, max((d.codes_shares for d in work.dots), default=1))
        parts = max((_split_elements(d, options, target) for d in work.dots), default=0)
        largest = work.largest
        if work.is_promoted and is_fed:
            largest = min(largest, (1 << SLICE_BITS) * 32 * num_warps)
        most = max(most, carried + held + largest + parts)
        # After the loop a deferred sum shrinks to what it reduces to.
        carried += sum(elements[a] for a in work.accumulators)
    return base + most // (32 * num_warps)


def _operand_elements(dot: Dot, options: LaunchConfig) -> tuple[int, int]:
    """Elements of the operands of a matmul, the one with the rows first."""
    rows, columns = dot.sides[:: -1 if options.reversed_axes else 1]
    return dot.multiplications // columns, dot.multiplications // rows


def _split_elements(dot: Dot, options: LaunchConfig, target: Target) -> int:
    """Registers of a block for the parts of a split matmul: Triton holds those of whole tiles, a
    CUDA kernel those of one step. Fitted to what ptxas gives 18 kernels on sm_80 and sm_90, and
    nine kernels of one split wgmma.
    """
    if not is_rounded(dot, options):
        return 0
    left, right = _operand_elements(dot, options)
    rows, columns = dot.sides[:: -1 if options.reversed_axes else 1]
    if not is_warp_group_dot(dot, options, target):
        down, across = plain_warps(rows, columns, options.num_warps)
        left, right = left * across, right * down
    elif is_split(dot, options):
        # Both parts of the rows are in registers, of the columns in shared memory. The three
        # matmuls have a sum of their own, which is added to the accumulator.
        return 2 * left * warp_groups_across(rows, options.num_warps) + rows * columns
    return (_SPLIT_REGISTERS if is_split(dot, options) else 1) * (left + right) // 2


def warp_groups_across(rows: int, num_warps: int) -> int:
    """Warp groups side by side along the columns of a wgmma, which have the same rows."""
    groups = num_warps // _WARP_GROUP
    return groups // min(groups, rows // WARP_GROUP_ROWS)


def plain_warps(rows: int, columns: int, num_warps: int) -> tuple[int, int]:
    """Warps along rows and columns of a single matmul.

    By default a matmul is halved along the side with more instruction tiles left per warp (Triton
    3.6, ``warpsPerTileV2``). Matmuls of one section that share operands get the same warps: along
    the rows or along the columns, whichever the last of them in the text has more of. The emitter
    puts the one with the longest sides last.
    """
    down = across = 1
    left_down, left_across = max(1, rows // MMA_ROWS), max(1, columns // MMA_COLUMNS)
    while down * across < num_warps:
        if left_down >= left_across:
            down *= 2
            # With too many warps some do the same.
            left_down = max(1, left_down // 2)
        else:
            across *= 2
            left_across //= 2
    return down, across
