"""NVIDIA H100 SXM: the H200's processor with 80 GB of HBM3 (data sheet 3.35 TB/s, 80 % assumed
reached).
"""

from mirage_py.targets.base import Target

H100 = Target(
    name="h100",
    capability=90,
    sms=132,
    smem_per_block_bytes=232448,
    smem_per_sm_bytes=233472,
    registers_per_sm=65536,
    l2_bytes=50 << 20,
    dram_bytes_per_us=2.7e6,
    l2_bytes_per_us=7.0e6,
    tensor_flops_per_us=7.5e8,
    vector_flops_per_us=6.0e7,
    launch_us=1.1,
    memory_latency_us=0.9,
    measured=False,
    max_cluster_blocks=16,
)
