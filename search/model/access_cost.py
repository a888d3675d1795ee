"""Access cost: the slowdown of a pointwise kernel that moves many times what the L2 holds, from the
shape of a block's accesses.

Read off kernels written by hand for ReLU of 1.6e9 values on an H200
(``benchmarks/results/h200-pointwise-by-hand.json``): 16 bytes a thread in blocks of 2 KB reach the
most, 4.28 TB/s. With more, the memory serves more pages at once; with less, too little is on its
way. It is another matter where the L2 has part of the data: kernels of 160 MB that follow matmuls
were as fast with four accesses a thread as with two. Of kernels that reduce rows, whose blocks have
as many bytes as rows do, nothing of the kind was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, sqrt

from mirage_py.search.tilings.runs import run_bytes
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.node import REDUCING, STORES

# The kernels by hand move 102 times what the L2 holds, those of 160 MB 2.5 times.
_LARGE = 8
# The largest access of a thread, and the bytes of a block of the fastest kernels.
_VECTOR_BYTES, _BLOCK_BYTES = 16, 2048
# What each doubling of a thread's accesses costs, and of a block's bytes, up to so many doublings:
# beyond them the kernels by hand are equally slow. Fitted to all of them without cache hints whose
# accesses have 16 bytes, of which the rest are within 1 %. Blocks of less than 2 KB are not among
# them; they are charged as larger ones are.
_VECTORS, _BLOCKS = (0.0126, 2.0), (0.0085, 3.0)
# What each halving of the run of memory that a block reads costs: of four plans that KernelBench
# raced on an H200, tiles of 256 columns took 0.5 and 1.2 % longer than those of 512.
_RUNS = 0.007
_MAX_BLOCKS_PER_SM, _MAX_THREADS_PER_SM = 32, 2048


@dataclass(frozen=True, slots=True)
class Accesses:
    """The widest tile that a block reads or writes: its bytes, and of those the bytes that lie side
    by side in memory. A kernel that transposes has runs of several lengths, of which
    ``run_bytes`` is the longest: what short ones waste is counted in ``search/tilings/runs.py``.
    """

    tile_bytes: int
    run_bytes: int


def widest_accesses(kernel: TiledKernel) -> Accesses | None:
    """The widest tile among the loads and stores of a pointwise kernel; None for any other."""
    nodes, tensors = kernel.block.nodes, kernel.scope.tensors
    if kernel.block.has_loops or any(n.op in REDUCING for n in nodes):
        return None
    bytes_of = {
        n: kernel.elements[n] * tensors[node.access.tensor].dtype.bytes
        for n, node in enumerate(nodes)
        if node.op == "load" or node.op in STORES
    }
    widest = max(bytes_of.values(), default=0)
    runs = (run_bytes(kernel, n) for n, size in bytes_of.items() if size == widest)
    return Accesses(widest, max(runs, default=0))


def is_large(moved_bytes: int, target: Target) -> bool:
    """Whether the L2 has next to nothing of what a kernel moves."""
    return moved_bytes > _LARGE * target.l2_bytes


def slowdown(
    accesses: Accesses, num_warps: int, blocks: int, moved_bytes: int, target: Target
) -> float:
    """The factor by which such a kernel takes longer than the best of its kind, at least 1."""
    threads = 32 * num_warps
    vectors, most_vectors = _VECTORS
    block, most_blocks = _BLOCKS
    each = log2(max(1.0, accesses.tile_bytes / (threads * _VECTOR_BYTES)))
    away = abs(log2(accesses.tile_bytes / _BLOCK_BYTES))
    whole = min(accesses.tile_bytes, _BLOCK_BYTES)
    short = log2(max(1.0, whole / max(1, accesses.run_bytes)))
    shape = vectors * min(each, most_vectors) + block * min(away, most_blocks) + _RUNS * short
    # Little's law: each block takes the latency of the memory once, and so many run side by side.
    # The slower of the two hides the other as in the cost model, as a norm of order 4 (accesses of
    # 8 and 4 bytes took 1.11 to 1.14 and 1.7 times as long).
    resident = target.sms * max(1, min(_MAX_BLOCKS_PER_SM, _MAX_THREADS_PER_SM // threads))
    latency_us = blocks / resident * target.memory_latency_us
    late = latency_us * target.dram_bytes_per_us / moved_bytes
    return (1.0 + shape) * sqrt(sqrt(1.0 + (late * late) ** 2))
