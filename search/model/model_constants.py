"""Fitted constants of the cost model: figures of a GPU that no data sheet has.

All of them are fitted together to plans measured on an H200 (``python -m
benchmarks.calibration.calibrate``) and rounded. So none alone is a measurement of what its name
says: it is the value with which the whole model ranks well. ``stall`` is set by hand, between the
values that plans of RMSNorm and of LoRA ask for; those of straight kernels are fitted to 400 plans
of four elementwise and norm kernels that move 134 MB.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.targets import Target


@dataclass(frozen=True, slots=True)
class ModelConstants:
    """Times in microseconds; shares are of a rate that the target names.

    * ``sync_us``: a sum over a tile; ``step_us``: a matmul or a layout conversion.
    * ``single_issue``, ``joint_issue``: of the issue slots, what one block fills alone and what all
      resident blocks fill together.
    * ``straight_issue``, ``straight_power``: ``joint_issue`` and ``power`` of straight kernels, the
      ones without a loop or a matmul: blocks are short and start one after the other.
    * ``overlap``: what the faster resources of an iteration add to the slowest. ``power``: how
      sharply the slower of memory and SMs hides the other (a norm of this order).
    * ``stall``: of the latency, what a load in a loop costs each iteration if it is no asynchronous
      copy. ``transfer``: of the time that an iteration's bytes take at the full rate, what adds to
      the latency.
    * ``plain_mma``: of the wgmma rate, what mma.sync reaches on sm_90. ``reduced_ops``:
      operations that a matmul on CUDA cores takes for each multiplication, in addition to it.
    * ``cache``, ``latency``, ``dram``: factors on the target's bandwidths and latency.
    * ``operand_bytes_per_us``: what the matmuls of an SM read from shared memory.
    * ``ramp``: of the latency, what every kernel takes until the memory is busy and when it no
      longer is. ``restart_us``: what the end of a block and the start of the next cost an SM that
      holds one block at a time.
    * ``library_memory``, ``library_tensor``: of the rates, what a library matmul reaches;
      ``library_us``: its constant cost.
    * ``block_starts_per_us``: blocks that the GPU starts. Kernels of small blocks start one in each
      cycle on an H200, 1,650; here as much less as pointwise kernels move more bytes than the
      target says.
    * ``cluster_us``: what a cluster's blocks take to combine their results: two barriers, and
      reads of one another's shared memory. Not fitted yet: a guess.
    """

    sync_us: float
    step_us: float
    single_issue: float
    joint_issue: float
    straight_issue: float
    straight_power: float
    overlap: float
    power: float
    stall: float
    plain_mma: float
    cache: float
    latency: float
    dram: float
    ramp: float
    restart_us: float
    operand_bytes_per_us: float
    reduced_ops: float
    transfer: float
    library_memory: float
    library_tensor: float
    library_us: float
    block_starts_per_us: float
    cluster_us: float


HOPPER = ModelConstants(
    sync_us=0.03,
    step_us=0.0071,
    single_issue=1.0,
    joint_issue=0.44,
    straight_issue=0.65,
    straight_power=4.0,
    overlap=0.015,
    power=2.54,
    stall=2.5,
    plain_mma=0.33,
    cache=2.1,
    latency=0.45,
    dram=1.1,
    ramp=1.39,
    restart_us=2.0,
    operand_bytes_per_us=1.65e5,
    reduced_ops=3.5,
    transfer=0.77,
    library_memory=0.957,
    library_tensor=0.925,
    library_us=1.82,
    block_starts_per_us=1380.0,
    cluster_us=0.6,
)


def constants_of(target: Target) -> ModelConstants:
    """The constants for a target; there are measurements of one family only."""
    del target
    return HOPPER
