"""Building blocks of the image networks."""

from __future__ import annotations

import torch
from torch import nn


class Normed(nn.Sequential):
    """Convolution, batch norm with drawn statistics, relu."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, ...] = 1,
        *,
        stride: int = 1,
        padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        relu: bool = True,
        axes: int = 2,
    ) -> None:
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if axes == 2 else (nn.Conv3d, nn.BatchNorm3d)
        made = conv(
            inputs, outputs, kernel, stride=stride, padding=padding, groups=groups, bias=False
        )
        super().__init__(made, norm(outputs), *([nn.ReLU()] if relu else []))
        nn.init.kaiming_normal_(made.weight)


class Residual(nn.Module):
    """What is added to its operand, or to a projection of it, before a relu."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Branches(nn.Module):
    """Branches of one operand, concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def draw_statistics(model: nn.Module) -> nn.Module:
    """Statistics of batch norms as training would leave them, and not 0 and 1."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.BatchNorm3d)):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0.0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model
