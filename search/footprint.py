"""Shared memory and registers of a block-graph instance, estimated before anything is compiled.

What Triton does, read off its TTGIR: loads of a loop become asynchronous copies into a ring of
buffers when each thread moves at least 4 bytes; the ring has num_stages slots where the product is
a warp-group one (64 rows and 4 warps on sm_90) and one less elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.deferral import deferred_sums
from mirage_py.codegen.tiles import Tiling
from mirage_py.targets import Target
from mirage_py.ugraph.plan import LaunchOptions

# Values a thread holds besides tiles: addresses, masks, loop state.
_BASE_REGISTERS = 40
_MIN_COPY_BYTES = 4
WARP_GROUP_ROWS = 64


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one block needs."""

    smem_bytes: int
    registers_per_thread: int


def is_warp_group_dot(tiling: Tiling, number: int, options: LaunchOptions, target: Target) -> bool:
    """Whether a matmul has the 64 rows that Hopper's warp-group product needs."""
    if target.capability < 90 or options.num_warps < 4:
        return False
    if tiling.block.nodes[number].op != "matmul" or not tiling.is_dot(number):
        return False
    section = tiling.block.section_of[number]
    roles = tiling.roles(number)
    rows, columns = roles.left, roles.right
    order = tiling.axis_order(options.flag("axes"))
    if order.index(columns[0]) < order.index(rows[0]):
        rows = columns
    return tiling.elements(rows, section) >= WARP_GROUP_ROWS


def is_pipelined(elements: int, element_bytes: int, num_warps: int) -> bool:
    """Whether a load in a loop can be an asynchronous copy."""
    return elements * element_bytes >= _MIN_COPY_BYTES * 32 * num_warps


def footprint(tiling: Tiling, options: LaunchOptions, target: Target) -> Footprint:
    """The estimate for one kernel."""
    block = tiling.block
    element_bytes = {t.name: t.dtype.bytes for t in tiling.program.tensors.values()}
    operands = _dot_operands(tiling)
    persistent = 0
    peak = 0
    loop = 0
    for number, section in enumerate(block.sections):
        ring = 0
        slots = 1
        if section.loop is not None:
            depth = options.num_stages[loop] if loop < len(options.num_stages) else 1
            loop += 1
            wide = any(is_warp_group_dot(tiling, n, options, target) for n in section.nodes)
            slots = max(1, depth if wide else depth - 1)
        for position in section.nodes:
            node = block.nodes[position]
            elements = tiling.elements(node.dims, number)
            if node.op == "load":
                size = elements * element_bytes.get(node.access.tensor, 4)
                if section.loop is None:
                    persistent += size if position in operands else 0
                elif is_pipelined(elements, size // max(1, elements), options.num_warps):
                    ring += size * slots
            elif position in operands:
                # A computed operand may have to pass through shared memory to change its layout.
                ring += 2 * elements
        peak = max(peak, ring)
    scratch = 512 * options.num_warps
    return Footprint(persistent + peak + scratch, _registers(tiling, options))


def _dot_operands(tiling: Tiling) -> frozenset[int]:
    nodes = tiling.block.nodes
    return frozenset(
        a for i, n in enumerate(nodes) if n.op == "matmul" and tiling.is_dot(i) for a in n.args
    )


def _registers(tiling: Tiling, options: LaunchOptions) -> int:
    """Accumulators live all through their loop; the largest values of each section come on top."""
    threads = 32 * options.num_warps
    block = tiling.block
    operands = _dot_operands(tiling)
    deferred = {a: s for s, a in deferred_sums(block, tiling, options).items()}
    most = 0
    carried = 0
    for number, section in enumerate(block.sections):
        accumulators = 0
        sizes = []
        for position in section.nodes:
            node = block.nodes[position]
            elements = tiling.elements(node.dims, number)
            if position in deferred:
                total = block.nodes[deferred[position]]
                accumulators += tiling.elements(block.nodes[total.args[0]].dims, number)
            elif node.op.startswith("accum"):
                accumulators += elements
            elif node.op == "matmul" and not tiling.is_dot(position):
                left, right = (block.nodes[a].dims for a in node.args)
                sizes.append(tiling.elements(tiling.program.order((*left, *right)), number))
            elif node.op not in ("const", "size", "store"):
                # An operand that goes straight from memory to a product costs no registers.
                direct = node.op == "load" and position in operands
                sizes.append(0 if direct else elements)
        sizes.sort(reverse=True)
        most = max(most, carried + accumulators + sum(sizes[:2]))
        # After the loop a deferred sum shrinks to what it reduces to.
        carried += sum(
            tiling.elements(block.nodes[n].dims, number)
            for n in section.nodes
            if block.nodes[n].op.startswith("accum")
        )
    return _BASE_REGISTERS + most // threads
