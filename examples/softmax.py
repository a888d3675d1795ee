"""Softmax over rows.

Run it to superoptimize the function, or use the command line:

    mirage-py superoptimize examples/softmax.py:softmax \
        --input x=f16[2048,4096]
"""

from __future__ import annotations

import torch

import mirage_py


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def example_inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the shapes that the function is meant for."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device).half()

    return (normal(2048, 4096),)


def main() -> None:
    """Compare the superoptimized function with the original."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = example_inputs(device)
    fast = mirage_py.superoptimize(softmax)
    error = (fast(*inputs) - softmax(*inputs)).abs().max().item()
    print(f"softmax: largest difference from eager {error:.3g}")


if __name__ == "__main__":
    main()
