"""The normalised residual of nGPT: a step from x towards h on the unit sphere.

Run it to superoptimize the function, or use the command line:

    mirage-py superoptimize examples/ntrans.py:ntrans \
        --input x=f16[8,4096] \
        --input h=f16[8,4096] \
        --input alpha=f16[8,4096]
"""

from __future__ import annotations

import torch

import mirage_py


def ntrans(x: torch.Tensor, h: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    h = h / torch.sqrt((h * h).sum(-1, keepdim=True))
    y = x + alpha * (h - x)
    return y / torch.sqrt((y * y).sum(-1, keepdim=True))


def example_inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the shapes that the function is meant for."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device).half()

    return normal(8, 4096), normal(8, 4096), normal(8, 4096)


def main() -> None:
    """Compare the superoptimized function with the original."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = example_inputs(device)
    fast = mirage_py.superoptimize(ntrans)
    error = (fast(*inputs) - ntrans(*inputs)).abs().max().item()
    print(f"ntrans: largest difference from eager {error:.3g}")


if __name__ == "__main__":
    main()
