"""The predicted baseline of a convolution: one call of the library."""

from __future__ import annotations

import torch

from mirage_py.frontend.torch.trace import trace
from mirage_py.search.model.baseline_model import fused_model_us
from mirage_py.targets import target


def test_a_padded_convolution_does_not_go_through_memory():
    x, w = torch.randn(1, 64, 65536).half(), torch.randn(64, 64, 5).half()
    padded = trace(lambda x, w: torch.nn.functional.conv1d(x, w, padding=2), x, w)
    plain = trace(lambda x, w: torch.nn.functional.conv1d(x, w, stride=1), x, w)
    first, second = (fused_model_us(p, target("h200")) for p in (padded, plain))
    assert abs(first - second) < 0.01 * second
