"""NVIDIA B200 (data sheet 8 TB/s and 2250 TFLOP/s dense fp16; 80 % assumed reached)."""

from mirage_py.targets.base import Target

B200 = Target(
    name="b200",
    capability=100,
    sms=148,
    smem_per_block_bytes=232448,
    smem_per_sm_bytes=233472,
    registers_per_sm=65536,
    l2_bytes=126 << 20,
    dram_bytes_per_us=6.4e6,
    l2_bytes_per_us=1.2e7,
    tensor_flops_per_us=1.8e9,
    vector_flops_per_us=7.5e7,
    launch_us=1.1,
    memory_latency_us=0.9,
    measured=False,
    max_cluster_blocks=16,
)
