"""How long a kernel takes, predicted from its tiles: a roofline with latency and waves.

A block's iteration costs what its slowest resource needs: tensor cores, plain cores, its share of
the cache's bandwidth, or the latency that its pipeline does not hide. Resident blocks share an SM.
The sum over waves is bounded below by the bytes that must cross the memory bus.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.deferral import deferred_sums
from mirage_py.codegen.tiles import Tiling
from mirage_py.search.footprint import Footprint, footprint, is_pipelined, is_warp_group_dot
from mirage_py.targets import Target
from mirage_py.ugraph.operators import ELEMENTWISE, operator
from mirage_py.ugraph.plan import LaunchOptions
from mirage_py.ugraph.program import Program

# One pass through a barrier or a shuffle tree.
_SYNC_US = 0.08
# Share of the issue slots that one block fills alone, and that all resident blocks fill together.
_SINGLE_BLOCK_ISSUE = 0.5
_SHARED_ISSUE = 0.8
_IMPERFECT_OVERLAP = 0.15
# A load in a loop that is no asynchronous copy stalls every iteration.
_UNPIPELINED_LATENCY = 0.6
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
    if memory_us > waves * wave_us:
        bound = "memory"
    total = _overlapped([memory_us, waves * wave_us])
    # Ramp up and down: the memory system idles while the first loads travel and the last blocks
    # end.
    return Estimate(
        total + target.launch_us + 0.5 * target.memory_latency_us, need, blocks, resident, bound
    )


def _overlapped(times_us: list[float]) -> float:
    """Time of work on several resources at once: the slowest hides most of the others."""
    return max(times_us) + _IMPERFECT_OVERLAP * (sum(times_us) - max(times_us))


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


@dataclass(frozen=True, slots=True)
class _Iteration:
    """What one iteration of a section asks of one block."""

    tensor_flops: float
    vector_ops: float
    cache_bytes: float
    exposed_us: float
    syncs: int


def _wave(tiling: Tiling, options: LaunchOptions, target: Target, per_sm: int) -> tuple[float, str]:
    """Time of one wave of ``per_sm`` blocks on every SM, and what bounds its longest section."""
    total = 0.0
    worst = (0.0, "latency")
    loop = 0
    for number, section in enumerate(tiling.block.sections):
        if not section.nodes:
            continue
        iterations, depth = 1, 1
        if section.loop is not None:
            size = tiling.program.sizes[section.loop]
            iterations = -(-size // tiling.padded(section.loop, number))
            depth = options.num_stages[loop] if loop < len(options.num_stages) else 1
            loop += 1
        work = _iteration(tiling, options, target, number)
        parts = _iteration_times(work, options, target, per_sm, depth)
        bound = max(parts, key=lambda k: parts[k])
        time_us = iterations * _overlapped(list(parts.values()))
        if work.cache_bytes and iterations > 1:
            time_us += target.memory_latency_us
        total += time_us
        if time_us > worst[0]:
            worst = (time_us, bound)
    return total, worst[1]


def _iteration_times(
    work: _Iteration, options: LaunchOptions, target: Target, per_sm: int, depth: int
) -> dict[str, float]:
    """Time of one iteration by resource; ``latency`` is one block's chain of dependent steps."""
    tensor_rate = target.tensor_flops_per_us / target.sms
    # A fused multiply-add counts as two flops in the rate but is one operation here.
    vector_rate = target.vector_flops_per_us / target.sms / 2
    alone = min(1.0, options.num_warps / 4)
    loads = work.cache_bytes > 0
    latency_us = target.memory_latency_us
    exposed_us = work.exposed_us if depth > 1 or not loads else latency_us
    chain = (
        work.tensor_flops / (tensor_rate * alone)
        + work.vector_ops / (vector_rate * alone * _SINGLE_BLOCK_ISSUE)
        + work.syncs * _SYNC_US
        + exposed_us
    )
    hidden = latency_us / max(1, depth - 1) if loads else 0.0
    return {
        "tensor cores": per_sm * work.tensor_flops / tensor_rate,
        "plain cores": per_sm * work.vector_ops / (vector_rate * _SHARED_ISSUE),
        "cache": per_sm * work.cache_bytes / (target.l2_bytes_per_us / target.sms),
        "latency": max(chain, min(hidden, latency_us)),
    }


def _iteration(tiling: Tiling, options: LaunchOptions, target: Target, number: int) -> _Iteration:
    block = tiling.block
    section = block.sections[number]
    dots = [n for n in section.nodes if block.nodes[n].op == "matmul" and tiling.is_dot(n)]
    operands = {a for n in dots for a in block.nodes[n].args}
    deferred = deferred_sums(block, tiling, options)
    tensor = vector = cache = exposed = 0.0
    syncs = len(dots)
    for position in section.nodes:
        node = block.nodes[position]
        elements = tiling.elements(node.dims, number)
        if node.op == "load":
            size = _element_bytes(tiling, node.access.tensor)
            cache += elements * size
            if section.loop is not None and not is_pipelined(elements, size, options.num_warps):
                exposed = max(exposed, _UNPIPELINED_LATENCY * target.memory_latency_us)
            if any(position in n.args and n.op != "matmul" for n in block.nodes):
                vector += 2 * elements
        elif node.op == "store":
            size = _element_bytes(tiling, node.access.tensor)
            cache += tiling.elements(node.access.dims(), number) * size
        elif node.op == "matmul":
            left, right = (block.nodes[a].dims for a in node.args)
            work = tiling.elements(tiling.program.order((*left, *right)), number)
            if position in dots:
                wide = is_warp_group_dot(tiling, position, options, target)
                rate = 1.0 if wide or target.capability < 90 else _PLAIN_MMA_RATE
                tensor += 2.0 * work / rate
            else:
                vector += work
        elif node.op in ("sum", "max"):
            vector += tiling.elements(block.nodes[node.args[0]].dims, number)
            syncs += position not in deferred
        elif operator(node.op).kind == ELEMENTWISE or node.op.startswith("accum"):
            vector += operator(node.op).flops * elements
        if position in operands and node.op != "load":
            # Rounded, and moved to the layout of an operand.
            vector += 2 * elements
            syncs += 1
    return _Iteration(tensor, vector, cache, exposed, syncs)


def _element_bytes(tiling: Tiling, tensor: str) -> int:
    known = tiling.program.tensors.get(tensor)
    return known.dtype.bytes if known is not None else 4


def _dram_bytes(tiling: Tiling) -> float:
    """Each tensor crosses the bus once; repeated reads of one tensor hit the L2."""
    used = {n.access.tensor for n in tiling.block.nodes if n.op in ("load", "store")}
    tensors = tiling.program.tensors
    return float(sum(tensors[t].bytes for t in tensors if t in used))
