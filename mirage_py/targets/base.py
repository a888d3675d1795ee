"""A target: the properties of a GPU that the cost model and the code generators need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU. Rates are what kernels reach, not the data sheet, where they were measured.

    ``max_cluster_blocks`` share a thread-block cluster at most, if the launch asks for more than
    the portable 8; 1 where there are no clusters. All blocks of a cluster run in one GPC;
    ``gpc_sms`` has the SMs of each, () where that is not known.
    """

    name: str
    capability: int
    sms: int
    smem_per_block_bytes: int
    smem_per_sm_bytes: int
    registers_per_sm: int
    l2_bytes: int
    dram_bytes_per_us: float
    l2_bytes_per_us: float
    tensor_flops_per_us: float
    vector_flops_per_us: float
    launch_us: float
    memory_latency_us: float
    measured: bool
    max_cluster_blocks: int = 1
    gpc_sms: tuple[int, ...] = ()

    def sms_for_clusters(self, blocks: int) -> int:
        """SMs that can have a block each at once, where so many ``blocks`` form a cluster."""
        return sum(n - n % blocks for n in self.gpc_sms or (self.sms,))

    @property
    def tf32_flops_per_us(self) -> float:
        """The rate of matmuls of TF32: half of that of halves in every data sheet."""
        return self.tensor_flops_per_us / 2

    def fp32_flops_per_us(self, *, rounds: bool) -> float:
        """The fastest rate of matmuls of float32: TF32 where that may be rounded to, else CUDA
        cores or three matmuls of TF32, which are about as exact.
        """
        if rounds:
            return self.tf32_flops_per_us
        return max(self.vector_flops_per_us, self.tf32_flops_per_us / 3)

    @property
    def max_registers_per_thread(self) -> int:
        """The architecture's limit for one thread."""
        return 255
