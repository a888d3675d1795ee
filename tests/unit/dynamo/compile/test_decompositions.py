"""What has no handler but is arithmetic or a view arrives as operators that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.handlers import HANDLERS

X = torch.linspace(-3, 3, 2 * 8 * 4 * 4).sin().view(2, 8, 4, 4) * 2
PART = X.sigmoid()
ROW = X[0, 0].flatten()

CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "prelu": (F.prelu, (X, torch.linspace(0, 1, 8))),
    "celu": (F.celu, (X,)),
    "hardshrink": (F.hardshrink, (X,)),
    "softshrink": (F.softshrink, (X,)),
    "threshold": (lambda x: F.threshold(x, 0.1, 2.0), (X,)),
    "log_sigmoid": (F.logsigmoid, (X,)),
    "logit": (lambda x: torch.logit(x, 0.2), (PART,)),
    "xlogy": (torch.xlogy, (X, PART)),
    "logaddexp": (torch.logaddexp, (X, X.flip(0))),
    "logaddexp2": (torch.logaddexp2, (X, X.flip(0))),
    "heaviside": (torch.heaviside, (X.round(), PART)),
    "cross": (lambda x: torch.linalg.cross(x[:, :3], x[:, 3:6], dim=1), (X,)),
    "count_nonzero": (lambda x: torch.count_nonzero(x, 1), (X.round(),)),
    "isin": (lambda x: torch.isin(x, torch.tensor([0.0, 2.0])), (X.round(),)),
    "rot90": (torch.rot90, (X,)),
    "sinc": (torch.sinc, (X.round(),)),
    "entropy": (torch.special.entr, (X,)),
    "xlog1py": (torch.special.xlog1py, (X, PART)),
    "ndtr": (torch.special.ndtr, (X,)),
    "degrees": (lambda x: torch.rad2deg(x) + torch.deg2rad(x), (X,)),
    "signed_infinities": (lambda x: torch.isposinf(x) | torch.isneginf(x), (1 / X.round(),)),
    "nansum": (lambda x: torch.nansum(torch.log(x), 1), (X,)),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), (X,)),
    "dist": (torch.dist, (X, PART)),
    "renorm": (lambda x: torch.renorm(x, 2.0, 1, 3.0), (X,)),
    "matrix_times_vector": (torch.mv, (X.view(16, 16), ROW)),
    "dot": (torch.dot, (ROW, PART[1, 1].flatten())),
    "weight_norm": (lambda v, g: torch._weight_norm(v, g, 0), (X, PART[:, :1, :1, :1])),
    "cross_entropy_of_shares": (F.binary_cross_entropy, (PART, PART.flip(0))),
    "cross_entropy_of_logits": (F.binary_cross_entropy_with_logits, (X, PART)),
    "soft_margin": (F.soft_margin_loss, (X, X.sign())),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (X,)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (X,)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (X,)),
    "diag_embed": (lambda x: torch.diag_embed(x, 1), (X[0],)),
    "block_diag": (torch.block_diag, (X[0, 0], X[0, 1, :2])),
    "linspace": (lambda x: x * torch.linspace(-1, 2, 4), (X,)),
    "eye": (lambda x: x + torch.eye(4), (X,)),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w, w), (X, torch.linspace(0, 1, 8))),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_arithmetic_or_a_view_has_handlers_and_the_same_values(
    traced: Callable[..., torch.fx.GraphModule], name: str
) -> None:
    fn, inputs = CASES[name]
    graph = traced(lambda xs: fn(*xs), inputs)
    with torch.no_grad():
        got, want = graph(inputs), fn(*inputs)
    targets = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert [t for t in targets if t not in HANDLERS and "getitem" not in t] == []
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_group_norm_is_a_region_and_keeps_the_layout(
    compiled: Callable[..., Any], lines: Callable[[str], list[str]], layout: torch.memory_format
) -> None:
    x = X.clone(memory_format=layout).requires_grad_()
    weight = torch.linspace(0.5, 1, 8, requires_grad=True)

    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.silu(F.group_norm(x, 2, weight))

    got, want = compiled(fn)(x, weight), fn(x, weight)
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()
    grads = [torch.autograd.grad((y * PART).sum(), (x, weight)) for y in (got, want)]
    torch.testing.assert_close(*grads)
    assert any("var" in line for line in lines("served by"))
    assert lines("native_group_norm") == []


def test_a_group_norm_of_no_sample_is_one(compiled: Callable[..., Any]) -> None:
    x = X[:0]
    with torch.no_grad():
        got = compiled(lambda x: F.group_norm(x, 2) + 1)(x)
    assert got.shape == x.shape
