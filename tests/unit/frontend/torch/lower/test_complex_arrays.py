"""Complex numbers inside a function of real tensors, against torch."""

from __future__ import annotations

import pytest
import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch import trace


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def pairs(x):
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


X, Y, ANGLES = drawn(2, 3, 4, 6), drawn(2, 3, 4, 6), drawn(3, 3)
TURNS = {
    "rotary": lambda x, y, a: pairs(x) * torch.polar(torch.ones_like(a), a)[None, :, None],
    "of two products": lambda x, y, a: (pairs(x) * pairs(y)).mT * pairs(y)[0, 1, :, 0],
    "with a real one": lambda x, y, a: a[:, None] * (pairs(x) + 2.0) - y[..., :3] + pairs(y) * 3,
    "turned back": lambda x, y, a: pairs(x) * pairs(y).conj().reshape(2, 3, 4, 3),
    "in pieces": lambda x, y, a: (
        torch.cat(pairs(x).split(2, -1)[::-1], -1) * torch.complex(a, -a)[0]
    ),
}


@pytest.mark.parametrize("name", TURNS)
def test_as_torch_does(agrees, name):
    agrees(lambda *xs: torch.view_as_real(TURNS[name](*xs)).flatten(-2), X, Y, ANGLES)


def test_both_parts_of_one(agrees):
    def fn(x):
        z = pairs(x) * pairs(x)
        return z.real + 1, z.imag * 2

    agrees(fn, X)


def test_a_real_number_is_its_own_conjugate(agrees):
    agrees(lambda x: x.conj_physical() * 2, X)


def test_half_types_are_complex_as_float32(agrees):
    x, table = X.bfloat16(), drawn(3, 3, 2)
    turned = lambda x, t: pairs(x.float()) * torch.view_as_complex(t)[None, :, None]  # noqa: E731
    agrees(lambda x, t: torch.view_as_real(turned(x, t)).flatten(-2).type_as(x), x, table)


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: pairs(x) * 2, "a result of complex numbers"),
        (lambda x: pairs(x).abs() + 1, "abs.default of complex numbers"),
        (lambda x: torch.view_as_real(pairs(x).exp()), "exp.default of complex numbers"),
        (lambda x: torch.view_as_real(pairs(x).sum(-1)), "sum.dim_IntList of complex numbers"),
    ],
)
def test_other_functions_are_refused(fn, what):
    with pytest.raises(UnsupportedError, match=what):
        trace(fn, X)
