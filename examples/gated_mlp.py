"""The gated unit of a transformer's MLP: two projections, one through SiLU.

Run it to superoptimize the function, or use the command line:

    mirage-py superoptimize examples/gated_mlp.py:gated_mlp \
        --input x=f16[8,4096] \
        --input w1=f16[4096,4096] \
        --input w2=f16[4096,4096]
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import mirage_py


def gated_mlp(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ w1) * (x @ w2)


def example_inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the shapes that the function is meant for."""

    def normal(*shape: int, fan_in: int = 1) -> torch.Tensor:
        x = torch.randn(shape, device=device) / fan_in**0.5
        return x.half()

    return normal(8, 4096), normal(4096, 4096, fan_in=4096), normal(4096, 4096, fan_in=4096)


def main() -> None:
    """Compare the superoptimized function with the original."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = example_inputs(device)
    fast = mirage_py.superoptimize(gated_mlp)
    error = (fast(*inputs) - gated_mlp(*inputs)).abs().max().item()
    print(f"gated_mlp: largest difference from eager {error:.3g}")


if __name__ == "__main__":
    main()
