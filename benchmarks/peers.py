"""What a user would run instead: eager PyTorch, torch.compile, and the library's own attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.workloads import Workload

Call = Callable[..., Any]


def peers(workload: Workload) -> dict[str, Call]:
    """Named functions of the workload's inputs; the first call of a compiled one compiles."""
    import torch

    function = workload.torch_function()
    found: dict[str, Call] = {
        "eager": function,
        "compile": torch.compile(function, dynamic=False),
        "compile_max_autotune": torch.compile(
            function, mode="max-autotune-no-cudagraphs", dynamic=False
        ),
    }
    if workload.name == "gqa":
        found |= _attention_library()
    return found


def _attention_library() -> dict[str, Call]:
    """Scaled dot product attention on the layout it likes best: K row-major, one transposed once.

    The program's K is [heads, features, keys]; the copy is made outside of what is timed.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    rows: dict[int, torch.Tensor] = {}

    def with_backend(backend: Any) -> Call:
        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if k.data_ptr() not in rows:
                rows[k.data_ptr()] = k.transpose(-1, -2).contiguous()
            with sdpa_kernel(backend):
                out = scaled_dot_product_attention(
                    q[None], rows[k.data_ptr()][None], v[None], scale=1.0
                )
            return out[0]

        return call

    return {
        "sdpa_flash": with_backend(SDPBackend.FLASH_ATTENTION),
        "sdpa_cudnn": with_backend(SDPBackend.CUDNN_ATTENTION),
    }
