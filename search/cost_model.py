"""How long a kernel takes, predicted from its tiles: a roofline with latency and waves.

A block's iteration costs what its slowest resource needs: tensor cores, plain cores, its share of
the cache's bandwidth, or the latency that its pipeline does not hide. Resident blocks share an SM.
The sum over waves is bounded below by the bytes that must cross the memory bus.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.tiles import Tiling
from mirage_py.search.footprint import Footprint, footprint, is_pipelined, is_warp_group_dot
from mirage_py.targets import Target
from mirage_py.ugraph.operators import ELEMENTWISE, operator
from mirage_py.ugraph.plan import LaunchOptions
from mirage_py.ugraph.program import Program

# One pass through a barrier or a shuffle tree.
_SYNC_US = 0.03
# Share of the warp-group rate that mma.sync reaches on sm_90.
_PLAIN_MMA_RATE = 0.5
_MAX_BLOCKS_PER_SM = 32
_MAX_THREADS_PER_SM = 2048


@dataclass(frozen=True, slots=True)
class Estimate:
    """A prediction for one kernel; ``bound`` names what limits it."""

    time_us: float
    footprint: Footprint
    blocks: int
    blocks_per_sm: int
    bound: str


def lower_bound_us(program: Program, target: Target) -> float:
    """No kernel for the program is faster: every input read once, every output written once, every
    contraction at the tensor cores' rate, one launch.
    """
    moved = sum(t.bytes for t in program.tensors.values())
    flops = 0.0
    for node in program.nodes:
        if node.op == "matmul":
            work = 2.0
            for d in (*node.dims, *node.reduced):
                work *= program.sizes[d]
            flops += work
    return max(
        moved / target.dram_bytes_per_us, flops / target.tensor_flops_per_us, target.launch_us
    )


def estimate(tiling: Tiling, options: LaunchOptions, target: Target) -> Estimate:
    """Predict one kernel."""
    need = footprint(tiling, options, target)
    blocks = tiling.grid_blocks
    resident = _blocks_per_sm(need, options, target)
    if resident == 0:
        return Estimate(float("inf"), need, blocks, 0, "does not fit")
    per_sm = min(resident, -(-blocks // target.sms))
    waves = max(1, -(-blocks // (target.sms * per_sm)))
    wave_us, bound = _wave(tiling, options, target, per_sm)
    memory_us = _dram_bytes(tiling) / target.dram_bytes_per_us
    total = waves * wave_us
    if memory_us > total:
        total, bound = memory_us, "memory"
    # Ramp up and down: the memory system idles while the first loads travel and the last blocks
    # end.
    return Estimate(
        total + target.launch_us + 0.5 * target.memory_latency_us, need, blocks, resident, bound
    )


def _blocks_per_sm(need: Footprint, options: LaunchOptions, target: Target) -> int:
    threads = 32 * options.num_warps
    if need.smem_bytes > target.smem_per_block_bytes:
        return 0
    if need.registers_per_thread > target.max_registers_per_thread:
        return 0
    return min(
        _MAX_BLOCKS_PER_SM,
        _MAX_THREADS_PER_SM // threads,
        target.smem_per_sm_bytes // (need.smem_bytes + 1024),
        target.registers_per_sm // (max(32, need.registers_per_thread) * threads),
    )


def _wave(tiling: Tiling, options: LaunchOptions, target: Target, per_sm: int) -> tuple[float, str]:
    """Time of one wave of ``per_sm`` blocks on every SM, and what bounds its longest section."""
    total = 0.0
    worst = (0.0, "latency")
    loop = 0
    for number, section in enumerate(tiling.block.sections):
        if not section.nodes:
            continue
        tensor_us, vector_us, cache_us, exposed_us, syncs = _section(
            tiling, options, target, number
        )
        iterations = 1
        depth = 1
        if section.loop is not None:
            iterations = -(
                -tiling.program.sizes[section.loop] // tiling.padded(section.loop, number)
            )
            depth = options.num_stages[loop] if loop < len(options.num_stages) else 1
            loop += 1
        loads = cache_us > 0
        hidden = target.memory_latency_us / max(1, depth - 1) if loads else 0.0
        if depth <= 1 and loads:
            exposed_us = target.memory_latency_us
        chain = tensor_us + vector_us + exposed_us + syncs * _SYNC_US
        parts = {
            "tensor cores": per_sm * tensor_us,
            "plain cores": per_sm * vector_us,
            "cache": per_sm * cache_us,
            "latency": max(chain, min(hidden, target.memory_latency_us)),
        }
        slowest = max(parts, key=lambda k: parts[k])
        time_us = iterations * parts[slowest]
        if loads and iterations > 1:
            time_us += target.memory_latency_us
        total += time_us
        if time_us > worst[0]:
            worst = (time_us, slowest)
    return total, worst[1]


def _section(
    tiling: Tiling, options: LaunchOptions, target: Target, number: int
) -> tuple[float, float, float, float, int]:
    """One iteration of one block: tensor, vector and cache time, exposed latency, barriers."""
    block = tiling.block
    section = block.sections[number]
    tensor_rate = target.tensor_flops_per_us / target.sms
    vector_rate = target.vector_flops_per_us / target.sms
    # One block with few warps cannot issue on all four schedulers.
    vector_rate *= min(1.0, options.num_warps / 4)
    tensor_us = vector_us = cache_us = exposed_us = 0.0
    syncs = 0
    for position in section.nodes:
        node = block.nodes[position]
        elements = tiling.elements(node.dims, number)
        if node.op == "load":
            size = _element_bytes(tiling, node.access.tensor)
            cache_us += elements * size / (target.l2_bytes_per_us / target.sms)
            if section.loop is not None and not is_pipelined(elements, size, options.num_warps):
                exposed_us = max(exposed_us, 0.6 * target.memory_latency_us)
        elif node.op == "store":
            size = _element_bytes(tiling, node.access.tensor)
            cache_us += (
                tiling.elements(node.access.dims(), number)
                * size
                / (target.l2_bytes_per_us / target.sms)
            )
        elif node.op == "matmul":
            left, right = (block.nodes[a].dims for a in node.args)
            work = 2.0 * tiling.elements(tiling.program.order((*left, *right)), number)
            if tiling.is_dot(position):
                wide = is_warp_group_dot(tiling, position, options, target)
                share = 1.0 if wide or target.capability < 90 else _PLAIN_MMA_RATE
                tensor_us += work / (tensor_rate * share * min(1.0, options.num_warps / 4))
                syncs += 1
            else:
                vector_us += work / vector_rate
        elif node.op in ("sum", "max"):
            operand = tiling.elements(block.nodes[node.args[0]].dims, number)
            vector_us += operand / vector_rate
            syncs += 1
        elif operator(node.op).kind == ELEMENTWISE or node.op.startswith("accum"):
            vector_us += operator(node.op).flops * elements / vector_rate
    return tensor_us, vector_us, cache_us, exposed_us, syncs


def _element_bytes(tiling: Tiling, tensor: str) -> int:
    known = tiling.program.tensors.get(tensor)
    return known.dtype.bytes if known is not None else 4


def _dram_bytes(tiling: Tiling) -> float:
    """Each tensor crosses the bus once; repeated reads of one tensor hit the L2."""
    used = {n.access.tensor for n in tiling.block.nodes if n.op in ("load", "store")}
    tensors = tiling.program.tensors
    return float(sum(tensors[t].bytes for t in tensors if t in used))
