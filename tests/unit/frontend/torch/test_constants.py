"""Tensors made from numbers: those that are written down, and memory that the function fills."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

import mirage_py
from mirage_py.errors import UnsupportedError
from mirage_py.runtime.eager.eager_source import torch_function


@functools.cache
def held() -> Tensor:
    return torch.tensor([1.0, 2.0, 3.0])


def normalised(x: Tensor) -> Tensor:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), x.new_tensor([[0.229], [0.224], [0.225]])
    return (x - mean[:, None]) / std


def by_head(x: Tensor) -> Tensor:
    return x * torch.tensor([[1, 2, 3], [6, 5, 4]])[:, :, None]


def filled(x: Tensor) -> Tensor:
    rows = torch.empty_like(x.transpose(0, 1))
    for n in range(3):
        rows[n] = x[:, n] * (n + 1)
    more = x.new_empty(2, 3, 5)
    more[...] = rows[1].sum(0)
    return rows.transpose(0, 1) + more


@pytest.mark.parametrize("function", [normalised, by_head, filled])
def test_they_are_what_they_are_in_torch(function):
    x = torch.randn(2, 3, 5)
    found = torch_function(mirage_py.trace(function, x))(x)
    torch.testing.assert_close(found, function(x))


def test_a_tensor_that_is_held_somewhere_is_none_of_them():
    held()
    with pytest.raises(UnsupportedError, match=r"a constant tensor of shape \[3\]"):
        mirage_py.trace(lambda x: x * held().clone(), torch.randn(2, 3))


CORNER = 1.0


def edges(x: Tensor) -> Tensor:
    """As image libraries spell their filters: more numbers than are chosen one by one."""
    along = [[-CORNER, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]
    across = [[-1.0, -2.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]]
    return torch.nn.functional.conv2d(x, torch.tensor([along, across])[:, None])


def squares_at(x: Tensor) -> Tensor:
    table = torch.tensor([n * n for n in range(20)])
    return x.flatten()[:7] * table[torch.arange(7) * 2]


@pytest.mark.parametrize("function", [edges, squares_at])
def test_many_numbers_are_an_input_that_calls_need_not_pass(function, monkeypatch):
    from frontend_kernels import Interpreter

    from mirage_py.frontend.searches import CallOptions
    from mirage_py.frontend.superoptimized import SuperoptimizedFunction

    served = SuperoptimizedFunction(function, CallOptions(strict=True), Interpreter())
    x = torch.randn(2, 1, 6, 6)
    for corner in (1.0, 1.0, 5.0):  # a number that is part of it is watched
        monkeypatch.setitem(globals(), "CORNER", corner)
        torch.testing.assert_close(served(x), function(x))
    assert [t.name for t in served.entry(x).traced.program.inputs] == ["x", "table"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + torch.distributions.Normal(0, 1).icdf(torch.tensor(0.95)),
        lambda x: x * torch.lgamma(torch.tensor([1.5, 2.5, 3.5, 0.5, 4.5])),
        lambda x: x * torch.gcd(torch.tensor([4, 6, 9, 8, 7]), torch.tensor(6)),
        lambda x: x * torch.hann_window(5).erfinv(),
    ],
)
def test_what_torch_makes_of_few_numbers_alone_is_known(agrees, fn):
    """Whatever operators that takes: they are no operators of a program."""
    agrees(fn, torch.randn(3, 5), single=True)


def test_what_is_drawn_is_not_known():
    with pytest.raises(UnsupportedError, match="rand_like"):
        mirage_py.trace(lambda x: x * torch.rand_like(torch.tensor([1.0, 2.0])), torch.randn(3, 2))
