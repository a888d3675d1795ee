"""A projection with a low-rank correction (LoRA).

Run it to superoptimize the function, or use the command line:

    mirage-py superoptimize examples/lora.py:lora \
        --input x=f16[16,256] \
        --input w=f16[256,4096] \
        --input a=f16[256,16] \
        --input c=f16[16,4096]
"""

from __future__ import annotations

import torch

import mirage_py


def lora(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return x @ w + (x @ a) @ c


def example_inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the shapes that the function is meant for."""

    def normal(*shape: int, fan_in: int = 1) -> torch.Tensor:
        x = torch.randn(shape, device=device) / fan_in**0.5
        return x.half()

    return (
        normal(16, 256),
        normal(256, 4096, fan_in=256),
        normal(256, 16, fan_in=256),
        normal(16, 4096, fan_in=16),
    )


def main() -> None:
    """Compare the superoptimized function with the original."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = example_inputs(device)
    fast = mirage_py.superoptimize(lora)
    error = (fast(*inputs) - lora(*inputs)).abs().max().item()
    print(f"lora: largest difference from eager {error:.3g}")


if __name__ == "__main__":
    main()
