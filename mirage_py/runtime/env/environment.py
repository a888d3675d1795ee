"""The hardware of this machine: the GPU and its target."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mirage_py.targets import A100, ALL_TARGETS, B200, H100, Target


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """The current GPU as torch sees it; ``capability`` is 90 for sm_90."""

    name: str
    capability: int
    sms: int
    l2_bytes: int
    cuda_version: str


@cache
def gpu() -> GpuInfo | None:
    """The GPU of this process, or None. torch is imported only where there may be one."""
    devices = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]
    if not devices:
        return None
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return None
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return GpuInfo(
        name=found.name,
        capability=10 * found.major + found.minor,
        sms=found.multi_processor_count,
        l2_bytes=int(found.L2_cache_size),
        cuda_version=torch.version.cuda,
    )


def detect_target() -> Target | None:
    """The target of this machine's GPU, or None without a GPU.

    A GPU that has no file in mirage_py.targets gets one derived from its closest relative.
    """
    found = gpu()
    return target_of(found) if found is not None else None


def target_of(found: GpuInfo) -> Target:
    """The target of a GPU. Variants (fewer SMs, another L2) keep the name of their model."""
    for known in ALL_TARGETS:
        # Whole words: a GH200 is no H200.
        named = re.search(rf"\b{known.name}\b", found.name, re.IGNORECASE)
        if named and known.capability == found.capability:
            return replace(known, sms=found.sms, l2_bytes=found.l2_bytes or known.l2_bytes)
    return _derived(found)


def _derived(found: GpuInfo) -> Target:
    """Rates in proportion to the SMs of the newest relative that is not newer than the GPU."""
    older = [t for t in (A100, H100, B200) if t.capability <= found.capability]
    relative = older[-1] if older else A100
    # Consumer parts have 100 KB of shared memory an SM where the data-centre part has more.
    small = found.capability % 10 != 0 or found.capability >= 120
    share = found.sms / relative.sms
    return replace(
        relative,
        name=f"sm_{found.capability}",
        capability=found.capability,
        sms=found.sms,
        smem_per_block_bytes=101376 if small else relative.smem_per_block_bytes,
        smem_per_sm_bytes=102400 if small else relative.smem_per_sm_bytes,
        l2_bytes=found.l2_bytes or relative.l2_bytes,
        dram_bytes_per_us=relative.dram_bytes_per_us * share,
        l2_bytes_per_us=relative.l2_bytes_per_us * share,
        tensor_flops_per_us=relative.tensor_flops_per_us * share,
        vector_flops_per_us=relative.vector_flops_per_us * share,
        measured=False,
    )
