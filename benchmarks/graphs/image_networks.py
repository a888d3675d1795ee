"""Image networks of the systems that rewrite graphs (TASO, tensat, PET), written out."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.graphs.blocks import Branches, Normed, Residual

F = nn.functional


def _bottlenecks(groups: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = [Normed(3, 64, 7, stride=2, padding=3), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        middle, outputs = width << stage, 256 << stage
        for n in range(depth):
            stride = 2 if n == 0 and stage else 1
            body = nn.Sequential(
                Normed(inputs, middle),
                Normed(middle, middle, 3, stride=stride, padding=1, groups=groups),
                Normed(middle, outputs, relu=False),
            )
            same = inputs == outputs and stride == 1
            shortcut = nn.Identity() if same else Normed(inputs, outputs, stride=stride, relu=False)
            layers.append(Residual(body, shortcut))
            inputs = outputs
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers, *head)


def resnet50() -> nn.Module:
    """ResNet-50."""
    return _bottlenecks(1, 64)


def resnext50() -> nn.Module:
    """ResNeXt-50, 32 groups of 4 channels."""
    return _bottlenecks(32, 128)


def resnet3d18() -> nn.Module:
    """ResNet-18 of videos."""
    layers: list[nn.Module] = [Normed(3, 64, (3, 7, 7), stride=2, padding=(1, 3, 3), axes=3)]
    inputs = 64
    for stage in range(4):
        outputs = 64 << stage
        for n in range(2):
            stride = 2 if n == 0 and stage else 1
            body = nn.Sequential(
                Normed(inputs, outputs, 3, stride=stride, padding=1, axes=3),
                Normed(outputs, outputs, 3, padding=1, relu=False, axes=3),
            )
            same = inputs == outputs and stride == 1
            project = Normed(inputs, outputs, stride=stride, relu=False, axes=3)
            layers.append(Residual(body, nn.Identity() if same else project))
            inputs = outputs
    head = [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(inputs, 400)]
    return nn.Sequential(*layers, *head)


def _pooled(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), Normed(inputs, outputs))


def _inception_a(inputs: int, pooled: int) -> nn.Module:
    return Branches(
        Normed(inputs, 64),
        nn.Sequential(Normed(inputs, 48), Normed(48, 64, 5, padding=2)),
        nn.Sequential(
            Normed(inputs, 64), Normed(64, 96, 3, padding=1), Normed(96, 96, 3, padding=1)
        ),
        _pooled(inputs, pooled),
    )


def _inception_c(middle: int) -> nn.Module:
    wide, high = {"kernel": (1, 7), "padding": (0, 3)}, {"kernel": (7, 1), "padding": (3, 0)}
    twice = nn.Sequential(
        Normed(768, middle),
        Normed(middle, middle, **high),
        Normed(middle, middle, **wide),
        Normed(middle, middle, **high),
        Normed(middle, 192, **wide),
    )
    once = nn.Sequential(
        Normed(768, middle), Normed(middle, middle, **wide), Normed(middle, 192, **high)
    )
    return Branches(Normed(768, 192), once, twice, _pooled(768, 192))


def _inception_e(inputs: int) -> nn.Module:
    def pair() -> nn.Module:
        return Branches(
            Normed(384, 384, (1, 3), padding=(0, 1)), Normed(384, 384, (3, 1), padding=(1, 0))
        )

    return Branches(
        Normed(inputs, 320),
        nn.Sequential(Normed(inputs, 384), pair()),
        nn.Sequential(Normed(inputs, 448), Normed(448, 384, 3, padding=1), pair()),
        _pooled(inputs, 192),
    )


def inception_v3() -> nn.Module:
    """Inception-v3 without its auxiliary head."""
    smaller = Branches(
        Normed(288, 384, 3, stride=2),
        nn.Sequential(Normed(288, 64), Normed(64, 96, 3, padding=1), Normed(96, 96, 3, stride=2)),
        nn.MaxPool2d(3, 2),
    )
    smallest = Branches(
        nn.Sequential(Normed(768, 192), Normed(192, 320, 3, stride=2)),
        nn.Sequential(
            Normed(768, 192),
            Normed(192, 192, (1, 7), padding=(0, 3)),
            Normed(192, 192, (7, 1), padding=(3, 0)),
            Normed(192, 192, 3, stride=2),
        ),
        nn.MaxPool2d(3, 2),
    )
    return nn.Sequential(
        Normed(3, 32, 3, stride=2),
        Normed(32, 32, 3),
        Normed(32, 64, 3, padding=1),
        nn.MaxPool2d(3, 2),
        Normed(64, 80),
        Normed(80, 192, 3),
        nn.MaxPool2d(3, 2),
        _inception_a(192, 32),
        _inception_a(256, 64),
        _inception_a(288, 64),
        smaller,
        *(_inception_c(middle) for middle in (128, 160, 160, 192)),
        smallest,
        _inception_e(1280),
        _inception_e(2048),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2048, 1000),
    )


class _Separable(nn.Sequential):
    """Twice relu, depthwise and pointwise convolution, batch norm."""

    def __init__(self, channels: int, kernel: int) -> None:
        layers: list[nn.Module] = []
        for _ in range(2):
            deep = nn.Conv2d(
                channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False
            )
            layers += [nn.ReLU(), deep, Normed(channels, channels, relu=False)]
        super().__init__(*layers)


class _NormalCell(nn.Module):
    """The normal cell of NasNet-A."""

    def __init__(self, before: int, inputs: int, channels: int) -> None:
        super().__init__()
        self.left, self.right = Normed(before, channels), Normed(inputs, channels)
        self.parts = nn.ModuleList(_Separable(channels, k) for k in (3, 5, 5, 3, 3))

    def forward(self, before: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        h, g = self.right(x), self.left(before)

        def pooled(y: torch.Tensor) -> torch.Tensor:
            return F.avg_pool2d(y, 3, 1, 1)

        sums = [
            self.parts[0](h) + h,
            self.parts[3](g) + self.parts[1](h),
            pooled(h) + g,
            pooled(g) + pooled(g),
            self.parts[2](g) + self.parts[4](g),
        ]
        return torch.cat([h, *sums], 1)


class NasNetA(nn.Module):
    """A stage of normal cells of NasNet-A (mobile): the cells that TASO's figures are about."""

    def __init__(self, cells: int = 4, channels: int = 44) -> None:
        super().__init__()
        self.stem = Normed(3, 32, 3, stride=2, padding=1)
        widths = [32, 32]
        made = []
        for _ in range(cells):
            made.append(_NormalCell(widths[-2], widths[-1], channels))
            widths.append(6 * channels)
        self.cells = nn.ModuleList(made)
        self.head = nn.Linear(widths[-1], 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = x = F.max_pool2d(self.stem(x), 3, 2, 1)
        for cell in self.cells:
            before, x = x, cell(before, x)
        return self.head(x.mean((2, 3)))


def rehearsal() -> nn.Module:
    """A network of a few small operators, among them two that become one."""
    branches = Branches(Normed(8, 8, 3, padding=1), Normed(8, 8, 3, padding=1))
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8)]
    return nn.Sequential(Normed(3, 8, 3, stride=2), branches, *head)


def csrnet() -> nn.Module:
    """CSRNet: the front of VGG-16, and six dilated convolutions."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512):
        if not width:
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        inputs = width
    for width in (512, 512, 512, 256, 128, 64):
        layers += [nn.Conv2d(inputs, width, 3, padding=2, dilation=2), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Conv2d(inputs, 1, 1))
