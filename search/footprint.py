"""Shared memory and registers of a tiled kernel, estimated before anything is compiled.

What Triton does, read off its TTGIR: loads of a loop become asynchronous copies into a ring of
buffers when each thread moves at least 4 bytes; the ring has num_stages slots where the product is
a warp-group one (64 rows and 4 warps on sm_90) and one less elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.search.tiled_kernel import TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.plan import LaunchOptions

# Values a thread holds besides tiles: addresses, masks, loop state.
_BASE_REGISTERS = 40
_MIN_COPY_BYTES = 4
WARP_GROUP_ROWS = 64
_WARP_GROUP = 4


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one block needs."""

    smem_bytes: int
    registers_per_thread: int


def is_warp_group_dot(
    kernel: TiledKernel, dot: int, options: LaunchOptions, target: Target
) -> bool:
    """Whether a product on tensor cores has the 64 rows that Hopper's warp-group product needs."""
    if target.capability < 90 or options.num_warps < _WARP_GROUP:
        return False
    return kernel.rows(dot, options.flag("axes")) >= WARP_GROUP_ROWS


def is_pipelined(elements: int, element_bytes: int, num_warps: int) -> bool:
    """Whether a load in a loop can be an asynchronous copy."""
    return elements * element_bytes >= _MIN_COPY_BYTES * 32 * num_warps


def smem_bytes(kernel: TiledKernel, options: LaunchOptions, target: Target) -> int:
    """Shared memory of one block."""
    block = kernel.block
    persistent = 0
    peak = 0
    loop = 0
    for section in block.sections:
        ring = 0
        slots = 1
        if section.loop is not None:
            depth = options.num_stages[loop] if loop < len(options.num_stages) else 1
            loop += 1
            dots = (n for n in section.nodes if n in kernel.dots)
            wide = any(is_warp_group_dot(kernel, n, options, target) for n in dots)
            slots = max(1, depth if wide else depth - 1)
        for position in section.nodes:
            node = block.nodes[position]
            elements = kernel.elements[position]
            if node.op == "load":
                size = kernel.element_bytes(node)
                if section.loop is None:
                    persistent += elements * size if position in kernel.operands else 0
                elif is_pipelined(elements, size, options.num_warps):
                    ring += elements * size * slots
            elif position in kernel.operands:
                # A computed operand may have to pass through shared memory to change its layout.
                ring += 2 * elements
        peak = max(peak, ring)
    return persistent + peak + 512 * options.num_warps


def registers(kernel: TiledKernel, num_warps: int) -> int:
    """Registers of one thread.

    Accumulators live all through their loop; the largest values of each section come on top.
    """
    block, elements = kernel.block, kernel.elements
    of_sum = {a: block.nodes[s].args[0] for s, a in kernel.deferred(num_warps).items()}
    most = 0
    carried = 0
    for section in block.sections:
        accumulators = 0
        sizes = [0, 0]
        for position in section.nodes:
            node = block.nodes[position]
            if position in of_sum:
                accumulators += elements[of_sum[position]]
            elif node.op.startswith("accum"):
                accumulators += elements[position]
            elif node.op == "matmul" and position not in kernel.dots:
                sizes.append(kernel.products(position))
            elif node.op not in ("const", "size", "store", "store_add"):
                # An operand that goes straight from memory to a product costs no registers.
                direct = node.op == "load" and position in kernel.operands
                sizes.append(0 if direct else elements[position])
        sizes.sort()
        most = max(most, carried + accumulators + sizes[-1] + sizes[-2])
        # After the loop a deferred sum shrinks to what it reduces to.
        carried += sum(elements[n] for n in section.nodes if block.nodes[n].op.startswith("accum"))
    return _BASE_REGISTERS + most // (32 * num_warps)
