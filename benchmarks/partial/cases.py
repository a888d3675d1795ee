"""Convolutions and products of the networks of PET's and TASO's evaluations, by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph
from mirage_py.ugraph.ir.dtypes import BF16

Call = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """Operators on inputs and weights of their own, and how many rounds of the search."""

    name: str
    calls: tuple[Call, ...]
    rounds: int = 1

    def graph(self) -> Graph:
        """The operators side by side; weights are constants."""
        builder = GraphBuilder()
        results = []
        for n, (op, x, w, attributes) in enumerate(self.calls):
            image = builder.input(f"x{n}", x, BF16)
            weight = builder.input(f"w{n}", w, BF16, constant=op.startswith("conv"))
            results.append(builder.apply(op, image, weight, **attributes))
        return builder.build(*results)


def _conv(x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Call:
    return f"conv{len(x) - 2}d", x, w, attributes


_CSRNET = [
    Case(f"csrnet-{out}-b{n}",
         (_conv((n, c, 14, 14), (out, c, 3, 3), padding=2, dilation=2),), rounds=2)
    for n in (1, 16) for c, out in ((512, 512), (512, 256), (128, 64))
]  # fmt: skip
_RESNET = [
    Case(f"resnet18-{c}-b{n}", (_conv((n, c, size, size), (c, c, 3, 3), padding=1),))
    for n in (1, 16)
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7))
]
_RESNEXT = [
    Case(f"resnext50-{c}-b{n}",
         (_conv((n, c, size, size), (c, c // 32, 3, 3), padding=1, groups=32),))
    for n in (1, 16) for c, size in ((128, 56), (256, 28), (512, 14), (1024, 7))
]  # fmt: skip
_INCEPTION = [
    Case("inception-1x7-b1", (_conv((1, 192, 17, 17), (192, 192, 1, 7), padding=(0, 3)),)),
    Case("inception-1x7-7x1-b1",
         (_conv((1, 192, 17, 17), (192, 192, 1, 7), padding=(0, 3)),
          _conv((1, 192, 17, 17), (192, 192, 7, 1), padding=(3, 0)))),
]  # fmt: skip
_OTHERS = [
    Case("resnet3d-64-b1", (_conv((1, 64, 8, 28, 28), (64, 64, 3, 3, 3), padding=1),)),
    Case("bert-scores-b16", (("bmm", (192, 128, 64), (192, 64, 128), {}),)),
]
CASES = (*_CSRNET, *_RESNET, *_RESNEXT, *_INCEPTION, *_OTHERS)
SMALL = (Case("small", (_conv((4, 4, 8, 8), (4, 4, 3, 3), padding=1),)),)
