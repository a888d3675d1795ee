"""LayerNorm with gain and bias, followed by a linear layer with bias.

Run it to superoptimize the function, or use the command line:

    mirage-py superoptimize examples/layernorm_linear.py:layernorm_linear \
        --input x=f16[16,4096] \
        --input gain=f16[4096] \
        --input bias=f16[4096] \
        --input w=f16[4096,4096] \
        --input c=f16[4096]
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import mirage_py


def layernorm_linear(
    x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, w: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), gain, bias, eps=1e-5) @ w + c


def example_inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the shapes that the function is meant for."""

    def normal(*shape: int, fan_in: int = 1) -> torch.Tensor:
        x = torch.randn(shape, device=device) / fan_in**0.5
        return x.half()

    return (
        normal(16, 4096),
        normal(4096),
        normal(4096),
        normal(4096, 4096, fan_in=4096),
        normal(4096),
    )


def main() -> None:
    """Compare the superoptimized function with the original."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = example_inputs(device)
    fast = mirage_py.superoptimize(layernorm_linear)
    error = (fast(*inputs) - layernorm_linear(*inputs)).abs().max().item()
    print(f"layernorm_linear: largest difference from eager {error:.3g}")


if __name__ == "__main__":
    main()
