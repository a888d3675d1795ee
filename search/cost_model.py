"""How long a kernel takes, predicted from its tiles: a roofline with latency and waves.

A block's iteration costs what its slowest resource needs: tensor cores, plain cores, its share of
the cache's bandwidth, or the latency that its pipeline does not hide. Resident blocks share an SM.
The sum over waves is bounded below by the bytes that must cross the memory bus.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mirage_py.search.footprint import (
    Footprint,
    is_pipelined,
    is_warp_group_dot,
    registers,
    smem_bytes,
)
from mirage_py.search.residency import tensors_of
from mirage_py.search.tiled_kernel import SectionWork, TiledKernel
from mirage_py.targets import Target
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
    """A prediction for one kernel; ``bound`` names what limits it.

    A library call has no blocks of ours and an empty footprint.
    """

    time_us: float
    footprint: Footprint
    blocks: int
    blocks_per_sm: int
    bound: str


def lower_bound_us(program: Program, target: Target, kernels: int = 1) -> float:
    """No plan of at least ``kernels`` kernels is faster: every input is read once, every output
    written once, every contraction runs at the tensor cores' rate, and kernels that wait for one
    another take a launch each. What goes between kernels only adds to it.
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
        moved / target.dram_bytes_per_us,
        flops / target.tensor_flops_per_us,
        kernels * target.launch_us,
    )


def start_us(target: Target) -> float:
    """What every kernel costs besides its work: the launch, and the ramp up and down, when the
    memory system idles while the first loads travel and the last blocks end.
    """
    return target.launch_us + 0.5 * target.memory_latency_us


class KernelModel:
    """Predicts one tiled kernel under any launch options.

    ``in_cache`` names the tensors that the L2 holds already or that never leave it.
    """

    def __init__(self, kernel: TiledKernel, target: Target, in_cache: Collection[str] = ()) -> None:
        self.kernel = kernel
        self.target = target
        self.blocks = kernel.tiling.grid_blocks
        tensors = kernel.scope.tensors
        moved = sum(tensors[t].bytes for t in tensors_of(kernel.block) if t not in in_cache)
        self.memory_us = moved / target.dram_bytes_per_us
        self._registers: dict[int, int] = {}

    def estimate(self, options: LaunchOptions) -> Estimate:
        """The prediction; its time is infinite where the kernel does not fit the target."""
        target = self.target
        need = self._footprint(options)
        resident = _blocks_per_sm(need, options, target)
        if resident == 0:
            return Estimate(float("inf"), need, self.blocks, 0, "does not fit")
        per_sm = min(resident, -(-self.blocks // target.sms))
        waves = max(1, -(-self.blocks // (target.sms * per_sm)))
        wave_us, bound = self._wave(options, per_sm)
        if self.memory_us > waves * wave_us:
            bound = "memory"
        total = _overlapped([self.memory_us, waves * wave_us])
        return Estimate(total + start_us(target), need, self.blocks, resident, bound)

    def _footprint(self, options: LaunchOptions) -> Footprint:
        warps = options.num_warps
        if warps not in self._registers:
            self._registers[warps] = registers(self.kernel, warps)
        own = self._registers[warps]
        fits = own <= self.target.max_registers_per_thread
        return Footprint(smem_bytes(self.kernel, options, self.target) if fits else 0, own)

    def _wave(self, options: LaunchOptions, per_sm: int) -> tuple[float, str]:
        """Time of one wave of ``per_sm`` blocks on every SM, and what bounds its longest part."""
        total = 0.0
        worst = (0.0, "latency")
        depths = iter(options.num_stages)
        deferred = self.kernel.deferred(options.num_warps)
        for work in self.kernel.sections:
            depth = next(depths, 1) if work.is_loop else 1
            barriers = work.barriers + sum(n not in deferred for n in work.sums)
            parts = _iteration_times(work, barriers, options, self.target, per_sm, depth)
            time_us = work.iterations * _overlapped(parts)
            if work.cache_bytes and work.iterations > 1:
                time_us += self.target.memory_latency_us
            total += time_us
            if time_us > worst[0]:
                worst = (time_us, _RESOURCES[parts.index(max(parts))])
        return total, worst[1]


def _overlapped(times_us: list[float]) -> float:
    """Time of work on several resources at once: the slowest hides most of the others."""
    slowest = max(times_us)
    return slowest + _IMPERFECT_OVERLAP * (sum(times_us) - slowest)


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


_RESOURCES = ("tensor cores", "plain cores", "cache", "latency")


def _iteration_times(
    work: SectionWork,
    barriers: int,
    options: LaunchOptions,
    target: Target,
    per_sm: int,
    depth: int,
) -> list[float]:
    """Time of one iteration by resource; the latency is one block's chain of dependent steps."""
    tensor_rate = target.tensor_flops_per_us / target.sms
    # A fused multiply-add counts as two flops in the rate but is one operation here.
    vector_rate = target.vector_flops_per_us / target.sms / 2
    alone = min(1.0, options.num_warps / 4)
    loads = work.cache_bytes > 0
    latency_us = target.memory_latency_us
    flops = _tensor_flops(work, options, target)
    exposed_us = latency_us if loads else 0.0
    if depth > 1:
        stalls = work.is_loop and not all(is_pipelined(b, options.num_warps) for b in work.loads)
        exposed_us = _UNPIPELINED_LATENCY * latency_us if stalls else 0.0
    chain = (
        flops / (tensor_rate * alone)
        + work.vector_ops / (vector_rate * alone * _SINGLE_BLOCK_ISSUE)
        + barriers * _SYNC_US
        + exposed_us
    )
    hidden = latency_us / max(1, depth - 1) if loads else 0.0
    return [
        per_sm * flops / tensor_rate,
        per_sm * work.vector_ops / (vector_rate * _SHARED_ISSUE),
        per_sm * work.cache_bytes / (target.l2_bytes_per_us / target.sms),
        max(chain, min(hidden, latency_us)),
    ]


def _tensor_flops(work: SectionWork, options: LaunchOptions, target: Target) -> float:
    """At the full rate: what a plain product takes longer counts as more flops."""
    flops = 0.0
    for dot in work.dots:
        full = target.capability < 90 or is_warp_group_dot(dot, options, target)
        flops += 2.0 * dot.products / (1.0 if full else _PLAIN_MMA_RATE)
    return flops
