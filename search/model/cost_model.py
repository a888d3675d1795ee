"""The cost model: a kernel's time from its tiles, as a roofline with latency and waves.

An iteration of a block costs what its slowest resource needs: tensor cores, CUDA cores, its share
of the cache's bandwidth, shared memory, or its own chain of dependent steps and the latency that
its ring of buffers does not hide. Resident blocks share an SM. The sum over waves and the bytes
from and to DRAM overlap, except at their ends.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from mirage_py.search.model.access_cost import is_large, slowdown, widest_accesses
from mirage_py.search.model.contraction_work import contraction_flops
from mirage_py.search.model.footprint import Footprint, registers
from mirage_py.search.model.kernel_load import QUARTERS, KernelLoad, SectionLoad, WarpedKernel
from mirage_py.search.model.matmul_rates import program_rate
from mirage_py.search.model.model_constants import ModelConstants, constants_of
from mirage_py.search.tilings.residency import moved_bytes, touched_bytes
from mirage_py.search.tilings.runs import with_waste
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program

_MAX_BLOCKS_PER_SM = 32
_MAX_THREADS_PER_SM = 2048
# What a kernel's other work counts where it reaches the rate of the memory.
_OTHER_WORK = 0.01
# What the end of one work tile and the start of the next cost a persistent kernel: on an H200
# matmuls of 128 x 256 results took 1.5 to 1.8 us less a wave than with a block for each tile.
_WORK_TILE_US = 0.3


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
    """No plan of at least ``kernels`` kernels is faster: what is named of every input is read once,
    every output written once, every contraction runs at the fastest rate for its type where no mask
    hides it, and kernels that wait for one another take a launch each. What goes between kernels
    only adds to it.
    """
    named = [n.access for n in program.nodes if n.op == "load"]
    named += [Access(o.tensor.name, o.index) for o in program.outputs]
    moved = sum(touched_bytes(program, named, sector_bytes=1).values())
    flops = contraction_flops(program)
    return max(
        moved / target.dram_bytes_per_us,
        flops / program_rate(program, target),
        kernels * target.launch_us,
    )


class KernelModel:
    """Predicts one tiled kernel under any launch options.

    ``in_cache`` names the tensors that the L2 holds already or that never leave it.
    """

    def __init__(self, kernel: TiledKernel, target: Target, in_cache: Collection[str] = ()) -> None:
        self.kernel = kernel
        self.target = target
        self.blocks = kernel.tiling.grid_blocks
        self._in_cache = in_cache
        self._touched = with_waste(kernel, target)
        # Blocks of a cluster start together: what is left of the SMs has no room for one.
        self._sms = target.sms_for_clusters(kernel.tiling.cluster_blocks)
        self._moved: dict[float, int] = {}
        self._registers: dict[Hashable, int] = {}
        self._warped: dict[Hashable, WarpedKernel] = {}
        self._estimates: dict[Hashable, Estimate] = {}

    def estimate(self, options: LaunchConfig) -> Estimate:
        """The prediction; its time is infinite where the kernel does not fit the target."""
        # Most flags are nothing to the model.
        key = self._warped_by(options), options.num_stages, options.persistent_blocks > 0
        if key not in self._estimates:
            known = constants_of(self.target)
            self._estimates[key] = estimate(self.load(options), self.target, known)
        return self._estimates[key]

    def load(self, options: LaunchConfig) -> KernelLoad:
        """What the kernel asks of the target, whatever the model makes of it."""
        target = self.target
        warped = self._under(options)
        need = warped.footprint(options.num_stages)
        resident = _blocks_per_sm(need, options, target)
        sms = self._sms
        per_sm = min(resident, -(-(options.persistent_blocks or self.blocks) // sms))
        waves = max(1, -(-self.blocks // (sms * per_sm))) if per_sm else 0
        moved = self._moved_bytes(sms * per_sm)
        return KernelLoad(
            need,
            self.blocks,
            resident,
            per_sm,
            waves,
            options.num_warps,
            moved,
            warped.sections if per_sm else (),
            warped.slots(options.num_stages) if per_sm else (),
            self.kernel.tiling.cluster_blocks,
            widest_accesses(self.kernel) if is_large(moved, target) else None,
            options.persistent_blocks > 0,
        )

    def _moved_bytes(self, resident: int) -> int:
        """What crosses the memory bus where so many blocks run at once. Blocks of matmuls share
        their operands in ways that are not looked at here.
        """
        at_once = 1.0 if self.kernel.dots else min(1.0, resident / self.blocks)
        if at_once not in self._moved:
            passes = self.kernel.body.passes
            self._moved[at_once] = moved_bytes(
                self._touched, passes, self._in_cache, self.target, at_once
            )
        return self._moved[at_once]

    def _under(self, options: LaunchConfig) -> WarpedKernel:
        key = self._warped_by(options)
        if key not in self._warped:
            # Registers are the same for every order of axes.
            of = (*key[:1], *key[2:])
            if of not in self._registers:
                self._registers[of] = registers(self.kernel, options, self.target)
            own = self._registers[of]
            self._warped[key] = WarpedKernel(self.kernel, options, self.target, own)
        return self._warped[key]

    def _warped_by(self, options: LaunchConfig) -> tuple[Hashable, ...]:
        """What a prediction depends on besides the depths of pipelines."""
        o, adds = options, self.kernel.body.has_loop_sums
        produced = o.producer_warps and adds
        return o.num_warps, o.reversed_axes, o.producer_sums, o.precision, o.matmul, produced


def estimate(load: KernelLoad, target: Target, constants: ModelConstants) -> Estimate:
    """The model's prediction for a kernel that asks this much."""
    if load.per_sm == 0:
        return Estimate(float("inf"), load.footprint, load.blocks, 0, "does not fit")
    memory_us = load.moved_bytes / (target.dram_bytes_per_us * constants.dram)
    wave_us, bound = _wave(load, memory_us, target, constants)
    # Until the memory is busy, and when the last blocks end, it idles.
    memory_us += constants.ramp * target.memory_latency_us
    if memory_us > load.waves * wave_us:
        bound = "memory"
    slower, faster = sorted((memory_us, load.waves * wave_us), reverse=True)
    power = constants.straight_power if load.is_straight else constants.power
    total = slower * (1 + (faster / slower) ** power) ** (1 / power)
    total += target.launch_us
    total += constants.cluster_us if load.cluster_blocks > 1 else 0.0
    # Between two blocks on an SM it waits, unless another one is at work there; short ones follow
    # one another at different times.
    if not load.is_straight:
        restart_us = _WORK_TILE_US if load.is_persistent else constants.restart_us
        total += (load.waves - 1) / load.per_sm * restart_us
    # The rate of the memory is what a good kernel reaches, its start included; of those that reach
    # it, the one with the least other work is first.
    reached_us = load.moved_bytes / target.dram_bytes_per_us
    total = max(total, reached_us * (1 + _OTHER_WORK * faster / slower))
    total = max(total, load.blocks / constants.block_starts_per_us + target.launch_us)
    if load.accesses is not None:
        total *= slowdown(load.accesses, load.num_warps, load.blocks, load.moved_bytes, target)
    return Estimate(total, load.footprint, load.blocks, load.resident, bound)


def _wave(
    load: KernelLoad, memory_us: float, target: Target, constants: ModelConstants
) -> tuple[float, str]:
    """Time of one wave of blocks on every SM, and the resource that bounds its longest section."""
    total = 0.0
    worst = (0.0, "latency")
    reads = sum(s.iterations for s in load.sections if s.cache_bytes)
    arrival_us = memory_us / load.waves / max(1, reads)
    issue = _issue(load, constants)
    for section, slots in zip(load.sections, load.slots, strict=True):
        times = _iteration_times(section, slots, load, issue, arrival_us, target, constants)
        slowest = max(times)
        iteration_us = slowest + constants.overlap * (sum(times) - slowest)
        time_us = section.iterations * iteration_us
        time_us += section.late_sums * constants.sync_us
        if slots:
            time_us += target.memory_latency_us * constants.latency
        total += time_us
        if time_us > worst[0]:
            worst = (time_us, _RESOURCES[times.index(slowest)])
    return total, worst[1]


def resource_times(load: KernelLoad, target: Target, constants: ModelConstants) -> dict[str, float]:
    """What each resource would take by itself for the whole kernel, in microseconds."""
    memory_us = load.moved_bytes / (target.dram_bytes_per_us * constants.dram)
    reads = sum(s.iterations for s in load.sections if s.cache_bytes)
    arrival_us = memory_us / max(1, load.waves) / max(1, reads)
    issue = _issue(load, constants)
    found = {"memory": memory_us, **dict.fromkeys(_RESOURCES, 0.0)}
    for section, slots in zip(load.sections, load.slots, strict=True):
        times = _iteration_times(section, slots, load, issue, arrival_us, target, constants)
        for name, time_us in zip(_RESOURCES, times, strict=True):
            found[name] += load.waves * section.iterations * time_us
    return found


def _blocks_per_sm(need: Footprint, options: LaunchConfig, target: Target) -> int:
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


_RESOURCES = ("tensor cores", "plain cores", "cache", "shared memory", "latency")


def _issue(load: KernelLoad, constants: ModelConstants) -> float:
    return constants.straight_issue if load.is_straight else constants.joint_issue


def _iteration_times(
    section: SectionLoad,
    slots: int,
    load: KernelLoad,
    issue: float,
    arrival_us: float,
    target: Target,
    constants: ModelConstants,
) -> list[float]:
    """Time of one iteration by resource; the latency is one block's chain of dependent steps.

    A buffer of the ring is asked for, its bytes arrive (``arrival_us`` if the memory is the
    bottleneck), and it is worked on: that takes a turn, in which every slot is filled once.
    """
    plain_us, group_us = _matmul_us(section, target, constants)
    rate = _vector_rate(target)
    vector_ops = section.vector_ops + constants.reduced_ops * section.reduced
    vector_ops += section.multiply_adds
    cache_rate = target.l2_bytes_per_us * constants.cache / target.sms
    cache_us = load.per_sm * section.cache_bytes / cache_rate
    # One block's steps, one after the other, once its operands are there.
    alone = min(1.0, load.num_warps / QUARTERS)
    chain = (
        group_us / alone
        + plain_us
        + vector_ops / (rate * alone * constants.single_issue)
        + section.barriers * constants.step_us
        + section.sums * constants.sync_us
    )
    latency_us = target.memory_latency_us * constants.latency
    if not section.cache_bytes:
        waited = chain
    elif slots == 0:
        waited = chain + latency_us
    elif section.stalls:
        waited = chain + constants.stall * latency_us
    else:
        turn = latency_us + constants.transfer * max(cache_us, arrival_us) + chain
        waited = max(chain, turn / slots)
    return [
        load.per_sm * (plain_us + group_us),
        load.per_sm * vector_ops / (rate * issue),
        cache_us,
        load.per_sm * section.operand_bytes / constants.operand_bytes_per_us,
        waited,
    ]


def _matmul_us(
    section: SectionLoad, target: Target, constants: ModelConstants
) -> tuple[float, float]:
    """Time of an SM's tensor cores for mma.sync and for wgmma."""
    rate = target.tensor_flops_per_us / target.sms
    plain_rate = rate * (constants.plain_mma if target.capability >= 90 else 1.0)
    return section.plain_flops / plain_rate, section.group_flops / rate


def _vector_rate(target: Target) -> float:
    """Operations of an SM; a fused multiply-add counts as two flops, but is one of them."""
    return target.vector_flops_per_us / target.sms / 2
