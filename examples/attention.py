"""Attention of grouped queries to two key-value heads; k is given transposed.

Run it to superoptimize the function, or use the command line:

    mirage-py superoptimize examples/attention.py:attention \
        --input q=f16[2,256,64] \
        --input k=f16[2,64,4096] \
        --input v=f16[2,4096,64]
"""

from __future__ import annotations

import torch

import mirage_py


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k, dim=-1) @ v


def example_inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the shapes that the function is meant for."""

    def normal(*shape: int, fan_in: int = 1) -> torch.Tensor:
        x = torch.randn(shape, device=device) / fan_in**0.5
        return x.half()

    return normal(2, 256, 64, fan_in=64), normal(2, 64, 4096), normal(2, 4096, 64)


def main() -> None:
    """Compare the superoptimized function with the original."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = example_inputs(device)
    fast = mirage_py.superoptimize(attention)
    error = (fast(*inputs) - attention(*inputs)).abs().max().item()
    print(f"attention: largest difference from eager {error:.3g}")


if __name__ == "__main__":
    main()
