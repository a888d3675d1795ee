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
