"""Differences that the tensor guard sees, and those it ignores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mirage_py.runtime.launch.tensor_guard import alike

X = torch.randn(4, 6)
W = torch.randn(6)
Z = torch.complex(X, X)


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Subclass(torch.Tensor):
    pass


def others() -> dict[str, Callable[[], object]]:
    return {
        "another shape": lambda: X[:2],
        "another rank": lambda: X[0],
        "other strides": lambda: torch.empty(6, 4).T,
        "expanded": lambda: X[:1].expand(4, 6),
        "every second column": lambda: torch.empty(4, 12)[:, ::2],
        "another type": X.double,
        "another device": lambda: X.to("meta"),
        "sparse": X.to_sparse,
        "a gradient": lambda: X.clone().requires_grad_(),
        "negated as it is read": lambda: torch.complex(Z.imag, Z.imag).conj().imag,
        "a parameter": lambda: nn.Parameter(X, requires_grad=False),
        "a subclass": lambda: X.as_subclass(Subclass),
        "inferred alone": torch.inference_mode()(X.clone),
        "a list": lambda: [1.0],
        "nothing": lambda: None,
    }


@pytest.mark.parametrize("name", others())
def test_what_differs_is_seen(name: str):
    fits = alike([X, W])
    assert fits(X, W)
    other = others()[name]()
    assert not fits(other, W)
    assert not alike([W, X])(W, other)


def test_values_and_addresses_are_not_asked():
    fits = alike([X, W])
    memory = torch.randn(100)
    assert fits(torch.zeros(4, 6), memory[1:7])
    assert fits(memory[:24].view(4, 6), memory[3:9])


def test_a_negated_view_is_another():
    assert alike([Z.imag])(torch.complex(X, W.expand(4, 6)).imag)
    assert not alike([Z.imag])(Z.conj().imag)
    assert alike([Z.conj().imag])(Z.conj().imag)


def test_a_gradient_that_was_not_wanted_may_be_wanted_now():
    wanted = X.clone().requires_grad_()
    with torch.no_grad():
        fits, twice = alike([wanted, W]), alike([wanted, wanted])
        assert fits(wanted, W)
        assert twice(wanted, wanted)
        assert not fits(X, W)
    assert not fits(wanted, W)
    assert not twice(wanted, wanted)
    assert alike([X, W])(X, W)


def test_whoever_watches_is_seen():
    fits, seen = alike([X, W]), []
    with Watching():
        seen.append(fits(X, W))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen.append(fits(X, W))
    torch.vmap(lambda y: (seen.append(fits(X, W)), y)[1])(torch.randn(3, 2))
    torch.func.grad(lambda y: (seen.append(fits(X, W)), y.sum())[1])(torch.randn(2))
    assert seen == [False] * 4
    assert fits(X, W)


def test_one_tensor_at_two_places():
    fits = alike([X, X])
    assert fits(X, X)
    assert fits(X, torch.zeros(4, 6))
    assert not fits(X, W)
    assert alike([X, torch.zeros(4, 6)])(torch.zeros(4, 6), X)
