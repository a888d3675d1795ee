"""RMSNorm followed by a projection.

Run it to superoptimize the function, or use the command line:

    mirage-py superoptimize examples/rmsnorm_matmul.py:rmsnorm_matmul \
        --input x=f16[16,4096] \
        --input g=f16[4096] \
        --input w=f16[4096,6144]
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import mirage_py


def rmsnorm_matmul(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), g, eps=1e-6) @ w


def example_inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the shapes that the function is meant for."""

    def normal(*shape: int, fan_in: int = 1) -> torch.Tensor:
        x = torch.randn(shape, device=device) / fan_in**0.5
        return x.half()

    return normal(16, 4096), normal(4096), normal(4096, 6144, fan_in=4096)


def main() -> None:
    """Compare the superoptimized function with the original."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = example_inputs(device)
    fast = mirage_py.superoptimize(rmsnorm_matmul)
    error = (fast(*inputs) - rmsnorm_matmul(*inputs)).abs().max().item()
    print(f"rmsnorm_matmul: largest difference from eager {error:.3g}")


if __name__ == "__main__":
    main()
