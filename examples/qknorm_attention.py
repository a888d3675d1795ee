"""Attention with queries and keys normalised over the head dimension.

Run it to superoptimize the function, or use the command line:

    mirage-py superoptimize examples/qknorm_attention.py:qknorm_attention \
        --input q=f16[2,256,64] \
        --input k=f16[2,4096,64] \
        --input v=f16[2,4096,64]
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import mirage_py


def qknorm_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q = F.rms_norm(q, (q.shape[-1],), eps=1e-6)
    k = F.rms_norm(k, (k.shape[-1],), eps=1e-6)
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v


def example_inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the shapes that the function is meant for."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device).half()

    return normal(2, 256, 64), normal(2, 4096, 64), normal(2, 4096, 64)


def main() -> None:
    """Compare the superoptimized function with the original."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = example_inputs(device)
    fast = mirage_py.superoptimize(qknorm_attention)
    error = (fast(*inputs) - qknorm_attention(*inputs)).abs().max().item()
    print(f"qknorm_attention: largest difference from eager {error:.3g}")


if __name__ == "__main__":
    main()
