"""Prices of convolutions beside what kernels took on an H200, and what follows from them.

Measured: benchmarks/results/h200-graphs.json, and docs/explanation/convolutions.md of windows.
"""

from __future__ import annotations

import pytest

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.search.networks.costs import NetworkCosts
from mirage_py.search.networks.egraph import ENode
from mirage_py.search.networks.optimize_network import optimize_network
from mirage_py.search.networks.saturate import Limits
from mirage_py.targets import target
from mirage_py.ugraph.ir.dtypes import BF16

H200 = target("h200")


def price(batch: int, inputs: int, results: int, side: int, kernel: int, groups: int = 1) -> float:
    """Of a convolution with padding by half."""
    pair = (kernel, kernel)
    attributes = (("dilation", (1, 1)), ("groups", groups), ("padding", (kernel // 2,) * 2),
                  ("stride", (1, 1)))  # fmt: skip
    image = TensorType((batch, inputs, side, side), BF16)
    weight = TensorType((results, inputs // groups, *pair), BF16)
    result = TensorType((batch, results, side, side), BF16)
    return NetworkCosts(H200).library_us(
        ENode("conv2d", attributes, (0, 1)), [image, weight], [result]
    )


# Batch, channels in and out, places along a side, kernel, groups; the fastest kernel measured.
MEASURED = {
    "44 channels": ((16, 44, 44, 56, 3), 19.2),
    "44 to 88 channels": ((16, 44, 88, 56, 3), 26.2),
    "44 channels, one sample": ((1, 44, 44, 56, 3), 5.4),
    "44 channels, 5 by 5, one sample": ((1, 44, 44, 56, 5), 9.3),
    "44 channels, single places": ((16, 44, 44, 56, 1), 5.4),
    "groups of 8": ((16, 128, 128, 56, 3, 16), 24.3),
    "groups of 8, fewer places": ((16, 256, 256, 28, 3, 32), 14.3),
    "groups of 16": ((16, 512, 512, 14, 3, 32), 8.6),
    "groups of 8, one sample": ((1, 128, 128, 56, 3, 16), 4.3),
    "depthwise": ((32, 128, 128, 112, 3, 128), 82.8),
    "depthwise, 7 by 7": ((32, 96, 96, 56, 7, 96), 35.7),
    "aligned channels": ((16, 128, 128, 28, 3), 13.0),
    "aligned channels, single places": ((16, 128, 512, 28, 1), 10.3),
}


@pytest.mark.parametrize("name", MEASURED)
def test_prices_are_near_what_was_measured(name: str) -> None:
    given, us = MEASURED[name]
    assert 0.7 <= price(*given) / us <= 1.2


def test_products_of_small_pieces_cost_more_than_two_kernels() -> None:
    """NasNet-A at batch 16: 3 by 3 of 44 channels and a pointwise one are not made one."""
    apart = price(16, 44, 44, 56, 3, 44) + price(16, 44, 44, 56, 1)
    assert apart < 0.8 * price(16, 44, 44, 56, 3)
    # Aligned channels at one sample are: a launch is saved.
    assert price(1, 64, 64, 28, 3) < price(1, 64, 64, 28, 3, 64) + price(1, 64, 64, 28, 1)


@pytest.mark.parametrize(("batch", "channels", "is_one"), [(16, 44, False), (1, 64, True)])
def test_separable_convolutions_are_one_where_that_pays(
    batch: int, channels: int, is_one: bool
) -> None:
    b = GraphBuilder()
    x = b.input("x", (batch, channels, 56, 56), BF16)
    deep = b.input("v", (channels, 1, 3, 3), BF16, constant=True)
    w = b.input("w", (channels, channels, 1, 1), BF16, constant=True)
    between = b.apply("conv2d", x, deep, groups=channels, padding=1)
    graph = b.build(b.apply("conv2d", between, w))
    found = optimize_network(graph, H200, substitutions=(), limits=Limits(rounds=1, solver=0.2))
    assert bool(found.steps) == is_one
