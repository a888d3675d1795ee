"""The cost of a kernel over windows, from what one of its threads does.

Each thread has a list of steps (``codegen/cuda/windows/``): they are counted as instructions, as
wavefronts of the L1 and as sectors of the L2, beside the bytes that cross the memory bus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod

from mirage_py.codegen.cuda.windows.order import FOLDS, Schedule, Step
from mirage_py.codegen.cuda.windows.shares import Shares
from mirage_py.codegen.cuda.windows.unrolled import share_counts
from mirage_py.codegen.cuda.windows.vectors import Vector
from mirage_py.search.model.cost_model import Estimate
from mirage_py.search.model.footprint import Footprint
from mirage_py.targets import Target
from mirage_py.ugraph.ir.program import Tensor

_WARP, _LINE_BYTES, _SECTOR_BYTES = 32, 128, 32
# Instructions of a thread for its places and pointers; registers beside its numbers.
_SETUP, _OWN_REGISTERS = 40, 18
# Registers for each number that is alive, as ptxas reads ahead.
_KEPT = 1.15
# Of an operator that is no addition, product or selection; of the issue slots, those that are used.
_FUNCTION, _ISSUED = 6, 0.75
_PLAIN = ("add", "sub", "mul", "where", "maximum", "minimum", "relu", "neg", "square", "cast")
# Warps on an SM that keep the memory busy.
_BUSY_WARPS = 24
_MAX_THREADS, _MAX_BLOCKS = 2048, 32
# How the times of resources add up: nearly the largest of them.
_POWER = 4.0


@dataclass(frozen=True, slots=True)
class ThreadWork:
    """What one thread does: ``instructions``, most ``registers`` at a time, and its vectors."""

    instructions: int
    registers: int
    vectors: tuple[tuple[Vector, bool], ...]


def thread_work(steps: Schedule, tensors: Mapping[str, Tensor]) -> ThreadWork:
    """The work of the steps of a thread."""
    count, scalars = _SETUP, steps.graph.scalars
    for step in steps.steps:
        if step.vector is not None:
            wanted = sum(m is not None for m in step.vector.members)
            halves = tensors[step.vector.tensor].dtype.is_half
            count += 1 + bool(step.vector.guard)
            count += wanted // (2 if step.is_store else 1) if halves else 0
        elif step.part >= 0:
            count += 0 if step.first and step.part not in steps.joined else 1
        else:
            count += 1 if scalars[step.scalar].op in _PLAIN else _FUNCTION
    found = tuple((s.vector, s.is_store) for s in steps.steps if s.vector is not None)
    registers = _OWN_REGISTERS + _KEPT * _most_alive(steps)
    return ThreadWork(count, int(registers), found)


def _most_alive(steps: Schedule) -> int:
    """Numbers that are known and still needed, at most."""
    left = dict(steps.uses)
    scalars = steps.graph.scalars
    alive = most = 0
    known: dict[int, None] = {}

    def used(number: int) -> int:
        if number in steps.joined:
            return sum(used(a) for a in scalars[number].args)
        left[number] -= 1
        return 1 if not left[number] and number in known else 0

    for step in steps.steps:
        ended, begun = _touched(step, steps)
        for number in begun:
            if number not in known:
                known[number] = None
                alive += 1
        most = max(most, alive)
        for number in ended:
            alive -= used(number)
    return most


def _touched(step: Step, steps: Schedule) -> tuple[list[int], list[int]]:
    """The numbers that a step reads, and makes."""
    scalars = steps.graph.scalars
    if step.vector is not None:
        members = [m for m in step.vector.members if m is not None]
        return (members, []) if step.is_store else ([], members)
    if step.part >= 0:
        return [step.part], [step.scalar]
    own = [] if scalars[step.scalar].op in FOLDS else [step.scalar]
    return list(scalars[step.scalar].args), own


def window_estimate(
    work: ThreadWork,
    shares: Shares,
    sizes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    moved: int,
    num_warps: int,
    target: Target,
    *,
    reached: int,
) -> Estimate:
    """The prediction for a kernel whose threads do this; ``moved`` bytes cross the memory bus, and
    all blocks together read or write ``reached`` bytes of the L2 at least.
    """
    threads = _WARP * num_warps
    counts = share_counts(sizes, shares)
    blocks = prod(ceil(counts[d] / n) for d, n in shares.threads.items())
    registers = min(255, work.registers)
    per_sm = min(
        _MAX_BLOCKS,
        _MAX_THREADS // threads,
        target.registers_per_sm // (-(-registers // 8) * 8 * threads),
    )
    if per_sm == 0 or work.registers > target.max_registers_per_thread:
        return Estimate(float("inf"), Footprint(0, registers), blocks, 0, "does not fit")
    # The last wave counts as far as its blocks have SMs to themselves.
    evenly = blocks / (ceil(blocks / target.sms) * target.sms)
    warps = blocks * num_warps
    clocks = target.vector_flops_per_us / (2 * _WARP * 4)  # of all SMs
    wavefronts = sectors = 0.0
    for vector, is_store in work.vectors:
        lines, touched = _of_warp(vector, shares, tensors)
        wavefronts += lines
        sectors += touched if is_store else 0.0
    busy = min(1.0, per_sm * num_warps / _BUSY_WARPS)
    times = {
        "memory": moved / target.dram_bytes_per_us / busy,
        "plain cores": warps * work.instructions / 4 / (clocks * _ISSUED) / evenly,
        "shared memory": warps * wavefronts / clocks / evenly,
        "cache": max(reached, warps * sectors * _SECTOR_BYTES) / target.l2_bytes_per_us,
    }
    total = sum(t**_POWER for t in times.values()) ** (1 / _POWER)
    total += target.launch_us + target.memory_latency_us
    bound = max(times, key=lambda name: times[name])
    return Estimate(total, Footprint(0, registers), blocks, per_sm, bound)


def _of_warp(vector: Vector, shares: Shares, tensors: Mapping[str, Tensor]) -> tuple[float, float]:
    """Lines and sectors of memory that the lanes of a warp touch at once."""
    each = tensors[vector.tensor].dtype.bytes
    step = {}
    for term, factor in vector.terms:
        for d in term.dims():
            step[d] = abs(factor) * each
    lanes, lines, sectors = _WARP, 1.0, 1.0
    is_first = True
    for dim, threads in shares.threads.items():
        beside = min(lanes, threads)
        lanes //= beside
        if beside == 1 or dim not in step:
            continue
        reach = (beside - 1) * step[dim] + vector.width * each
        if is_first:
            lines = max(1.0, min(beside, reach / _LINE_BYTES))
            sectors = max(1.0, min(beside, reach / _SECTOR_BYTES))
            is_first = False
        elif step[dim] >= _SECTOR_BYTES:
            sectors *= beside
            lines *= beside if step[dim] >= _LINE_BYTES else 1
    return lines, sectors
