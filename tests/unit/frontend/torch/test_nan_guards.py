"""Selections of NaN for what is NaN already."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import mirage_py
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.ugraph.rewrite.nan_guards import without_nan_guards

X = torch.rand(4, 8)
NAN = float("nan")


def kl(x, y):
    return F.kl_div(torch.log(x), y, reduction="batchmean")


def entropy(x):
    return torch.special.xlogy(x, x)


def guarded(x, y):
    return torch.where(torch.isnan(x), NAN, torch.where(x == 0, 0.0, x * y).exp() + 1)


def ops(program):
    return [n.op for n in program.nodes]


@pytest.mark.parametrize(("function", "count"), [(kl, 2), (entropy, 1), (guarded, 2)])
def test_a_guard_that_says_nothing_is_left_out(function, count):
    program = mirage_py.trace(function, *[X] * count)
    assert "isnan" in ops(program)
    bare = without_nan_guards(program)
    assert "isnan" not in ops(bare)
    row = torch.tensor([[0.0, 1.0, NAN, 0.5, 2.0, NAN, 0.25, 1.0]])
    inputs = [row.expand(4, 8)] * count
    found, want = torch_function(bare)(*inputs), torch_function(program)(*inputs)
    torch.testing.assert_close(found, want, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.where(torch.isnan(x), NAN, y),
        lambda x, y: torch.where(torch.isnan(x), 0.0, x + y),
        lambda x, y: torch.where(torch.isnan(x), NAN, torch.where(x != 0, 0.0, x * y)),
        lambda x, y: torch.where(torch.isnan(x), NAN, torch.where(y == 0, 0.0, x * y)),
        lambda x, y: torch.where(torch.isnan(x), NAN, torch.maximum(x * y, y)),
        lambda x, y: torch.where(torch.isnan(x), NAN, torch.tril(x) + y),
        # Laws of numbers leave nothing of x in these.
        lambda x, y: torch.where(torch.isnan(x), NAN, x * (x > 0)),
        lambda x, y: torch.where(torch.isnan(x), NAN, x * (y > 0)),
        lambda x, y: torch.where(torch.isnan(x), NAN, x * torch.tril(y)),
        lambda x, y: torch.where(torch.isnan(x), NAN, x * torch.where(y == 0, 0.0, y)),
        lambda x, y: torch.where(torch.isnan(x), NAN, x * (y - y)),
        lambda x, y: torch.where(torch.isnan(x), NAN, x * 0.0 + y),
        lambda x, y: torch.where(torch.isnan(x), NAN, (x + y) - x),
        lambda x, y: torch.where(torch.isnan(x), NAN, (x * y) / x),
        lambda x, y: torch.where(torch.isnan(x), NAN, torch.exp(x + y) / torch.exp(x)),
        lambda x, y: torch.special.xlogy(x * 0, x * 0) + y,
    ],
)
def test_one_that_does_stays(function):
    program = mirage_py.trace(function, X, X)
    assert without_nan_guards(program) == program


def test_a_divergence_is_searched():
    program = normalise(mirage_py.trace(kl, X, X))
    assert search(program, seed=0, limits=SearchLimits(max_kernels=1)).families
