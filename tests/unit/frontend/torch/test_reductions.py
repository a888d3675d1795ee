from __future__ import annotations

import pytest
import torch
from torch import Tensor


def of_sums(x: Tensor):
    return (
        x.sum(),
        x.sum(-1),
        x.sum((0, 2), keepdim=True),
        x.mean(),
        x.mean(1, keepdim=True),
        x.mean((0, -1)),
    )


def of_extremes(x: Tensor):
    return (
        x.amax(-1),
        x.amin((0, 1)),
        x.max(),
        x.min(),
        x.amax(),
        x.max(1).values,
        x.min(dim=0, keepdim=True)[0],
    )


def of_spreads(x: Tensor):
    return (
        x.var(-1),
        x.var(),
        x.var(1, unbiased=False),
        x.var((0, 2), correction=0, keepdim=True),
        x.std(-1),
        x.std(0, unbiased=False),
        torch.var(x, False),
    )


def of_norms(x: Tensor):
    return (
        x.norm(dim=-1),
        torch.linalg.vector_norm(x, 1, dim=1),
        torch.linalg.vector_norm(x, float("inf"), dim=(0, 1)),
        torch.nn.functional.normalize(x, dim=-1),
        torch.logsumexp(x, -1),
        torch.logsumexp(x, (0, 1), keepdim=True),
    )


def of_truths(x: Tensor):
    return (
        (x > 1).any(-1),
        (x > 9).any(),
        x.any(0, keepdim=True),
        (x > -9).all(),
        (x > -1).all(dim=(0, 2)),
        torch.all(x, 1),
    )


@pytest.mark.parametrize("fn", [of_sums, of_extremes, of_spreads, of_norms, of_truths])
def test_reductions(agrees, x, fn):
    agrees(fn, x)


@pytest.mark.parametrize("shape", [(1,), (1, 5), (5, 1), (1, 1, 1)])
def test_over_axes_of_extent_one(agrees, shape):
    agrees(lambda a: (a * 2).sum(-1) + a.mean() + a.amax(0).sum(), torch.randn(shape))


def test_of_merged_and_split_axes(agrees):
    agrees(
        lambda a: (a.flatten(1).sum(1), a.view(6, 10).mean(1), a.view(6, 2, 5).amax(2)),
        torch.randn(3, 4, 5),
    )


def test_of_repeated_axes(agrees):
    agrees(
        lambda a: (a[:, None].expand(4, 3, 5).sum(1), a.repeat(2, 3).sum((0, 1))), torch.randn(4, 5)
    )


def test_logsumexp_survives_large_logits(agrees):
    agrees(lambda a: torch.logsumexp(a, -1), torch.randn(3, 9) * 2000)


def test_a_cast_that_loses_digits_stays(agrees):
    traced = agrees(lambda a: a.sum(-1, dtype=torch.float16), torch.randn(3, 9), single=True)
    assert [n.attr.name for n in traced.program.nodes if n.op == "cast"] == ["f16"]


@pytest.mark.parametrize("function", [torch.var_mean, torch.std_mean])
def test_spread_and_mean_at_once(agrees, function):
    x = torch.randn(3, 5, 4)
    agrees(function, x)
    agrees(lambda x: function(x, 1, keepdim=True), x)
    agrees(lambda x: function(x, (0, 2), correction=0), x)
