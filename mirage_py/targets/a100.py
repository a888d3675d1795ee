"""NVIDIA A100 SXM 40 GB (data sheet 1.555 TB/s, 312 TFLOP/s in fp16; 85 % assumed reached)."""

from mirage_py.targets.base import Target

A100 = Target(
    name="a100",
    capability=80,
    sms=108,
    smem_per_block_bytes=166912,
    smem_per_sm_bytes=167936,
    registers_per_sm=65536,
    l2_bytes=40 << 20,
    dram_bytes_per_us=1.32e6,
    l2_bytes_per_us=4.0e6,
    tensor_flops_per_us=2.65e8,
    vector_flops_per_us=1.8e7,
    launch_us=1.8,
    memory_latency_us=0.9,
    measured=False,
)
