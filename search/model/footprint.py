"""Estimated shared memory and registers of a tiled kernel, before anything is compiled.

The rules are those seen in Triton's TTGIR: loads of a loop become asynchronous copies into a ring
of buffers if each thread moves at least 4 bytes; the ring has num_stages slots if the matmul is a
wgmma (64 rows and 4 warps on sm_90) and one less otherwise. A wgmma takes computed rows from
registers, and everything else from shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.search.tilings.tiled_kernel import Dot, TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# Values a thread holds besides tiles: addresses, masks, loop state.
_BASE_REGISTERS = 40
_MIN_COPY_BYTES = 4
_SCRATCH_BYTES_PER_WARP = 512
WARP_GROUP_ROWS = 64
_WARP_GROUP = 4


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one block needs."""

    smem_bytes: int
    registers_per_thread: int


def is_warp_group_dot(dot: Dot, options: LaunchConfig, target: Target) -> bool:
    """Whether a matmul on tensor cores has the 64 rows that wgmma needs."""
    if target.capability < 90 or options.num_warps < _WARP_GROUP:
        return False
    return dot.rows(options.reversed_axes) >= WARP_GROUP_ROWS


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
        passing = 2 * (work.computed - _in_registers(kernel, number, options, target))
        sections.append(
            SectionMemory(
                work.is_loop,
                passing + work.exchanged_bytes,
                sum(b for b in work.loads if is_pipelined(b, options.num_warps)),
                any(is_warp_group_dot(d, options, target) for d in work.dots),
            )
        )
    kept = sum(work.kept_bytes for work in kernel.work(options))
    return SharedMemory(kept + _SCRATCH_BYTES_PER_WARP * options.num_warps, tuple(sections))


def smem_bytes(kernel: TiledKernel, options: LaunchConfig, target: Target) -> int:
    """Shared memory of one block."""
    return shared_memory(kernel, options, target).bytes(options.num_stages)


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


def registers(kernel: TiledKernel, options: LaunchConfig) -> int:
    """Registers of one thread.

    Accumulators live all through their loop; the largest values of each section come on top.
    """
    nodes, elements = kernel.block.nodes, kernel.elements
    num_warps = options.num_warps
    summed = {a: nodes[s].args[0] for s, a in kernel.deferred(num_warps).items()}
    most = carried = 0
    for work in kernel.work(options):
        held = sum(elements[summed.get(a, a)] for a in work.accumulators)
        most = max(most, carried + held + work.largest)
        # After the loop a deferred sum shrinks to what it reduces to.
        carried += sum(elements[a] for a in work.accumulators)
    return _BASE_REGISTERS + most // (32 * num_warps)
