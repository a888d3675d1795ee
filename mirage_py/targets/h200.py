"""NVIDIA H200 SXM. Rates measured on one: reads at 3.45 TB/s, 8192^3 bf16 matmul at 790 TFLOP/s."""

from mirage_py.targets.base import Target

H200 = Target(
    name="h200",
    capability=90,
    sms=132,
    smem_per_block_bytes=232448,
    smem_per_sm_bytes=233472,
    registers_per_sm=65536,
    l2_bytes=60 << 20,
    dram_bytes_per_us=3.45e6,
    l2_bytes_per_us=7.0e6,
    tensor_flops_per_us=7.9e8,
    vector_flops_per_us=6.0e7,
    launch_us=1.1,
    memory_latency_us=0.9,
    measured=True,
    max_cluster_blocks=16,
    # What explains that 66 clusters of 2 fit at once, 30 of 4, 15 of 8 and 7 of 16, and twice and
    # three times as many (but for 2 of 62 and of 92) at 2 and 3 blocks an SM.
    gpc_sms=(18, 18, 18, 18, 18, 18, 16, 8),
)
