from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor


def of_two_tensors(x: Tensor, y: Tensor):
    return x + y, x - y, x * y, x / y, torch.add(x, y, alpha=0.5), torch.sub(x, y, alpha=3)


def of_tensor_and_number(x: Tensor):
    return (
        x + 1,
        x - 2.5,
        x * 3,
        x / 7,
        2 - x,
        1 / x,
        torch.add(x, 2, alpha=3),
        -x,
        torch.rsub(x, 4),
    )


def of_powers(x: Tensor):
    p = x.abs() + 0.1
    return (
        *(p**e for e in (2, 3, -1, -2, 0.5, -0.5, 1.7, 5)),
        *(2.0**x, p**p, torch.square(x), torch.pow(x, 4)),
    )


def of_roots(x: Tensor):
    p = x.abs() + 0.1
    return p.sqrt(), p.rsqrt(), p.log(), torch.log1p(p), p.reciprocal(), x.abs(), x.exp()


def of_bounds(x: Tensor, y: Tensor):
    return (
        torch.maximum(x, y),
        torch.minimum(x, y),
        x.clamp(-0.5, 0.5),
        x.clamp(min=0.1),
        x.clamp(max=0.1),
        torch.clamp(x, y, y + 1),
        x.clamp_min(0.2),
        x.clamp(-torch.inf, 0.3),
        x.clamp_max(0.2),
    )


def of_activations(x: Tensor):
    return (
        x.relu(),
        x.sigmoid(),
        x.tanh(),
        F.silu(x),
        F.gelu(x),
        F.gelu(x, approximate="tanh"),
        torch.erf(x),
        F.relu6(x),
    )


def of_decomposed_activations(x: Tensor):
    return (
        *(F.leaky_relu(x, 0.1), F.softplus(x), F.hardswish(x), F.mish(x), F.logsigmoid(x)),
        *(F.softplus(x, 2.0), F.softplus(x, 3.0, 1.5), F.softplus(x, -2.0, 0.5)),
        *(F.glu(x[..., :6]), F.elu(x), F.selu(x), F.celu(x, 2.0)),
    )


def of_decomposed_arithmetic(x: Tensor, y: Tensor):
    return (
        torch.addcmul(x, x, y, value=2.0),
        torch.lerp(x, y, 0.3),
        F.mse_loss(x, y),
        torch.outer(x[0, 0], y[0, 0]),
    )


ONE = [of_tensor_and_number, of_powers, of_roots, of_activations, of_decomposed_activations]
TWO = [of_two_tensors, of_bounds, of_decomposed_arithmetic]


@pytest.mark.parametrize("fn", ONE)
def test_of_one_tensor(agrees, x, fn):
    agrees(fn, x)


@pytest.mark.parametrize("fn", TWO)
def test_of_two_tensors(agrees, x, y, fn):
    agrees(fn, x, y)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 5, 7), (7,)),
        ((7,), (3, 5, 7)),
        ((3, 1, 7), (5, 1)),
        ((3, 5, 7), (1,)),
        ((3, 5, 7), ()),
        ((1, 1), (4, 3)),
        ((5, 5), (5,)),
        ((1, 1), (1, 1)),
        ((5, 1), (1, 5)),
    ],
)
def test_broadcasting(agrees, left, right):
    agrees(lambda a, b: (a + b, a * b - b), torch.randn(left), torch.randn(right))


def test_equal_sizes_stay_apart_until_an_operator_joins_them(agrees):
    program = agrees(lambda a, b: a.sum(1) + b.sum(0), torch.randn(4, 4), torch.randn(4, 4)).program
    assert len(program.dims) == 3


def test_a_tensor_meets_its_own_transpose(agrees):
    agrees(lambda a: a + a.T - 2 * (a * a.mT), torch.randn(5, 5))


def test_a_vector_meets_itself_on_two_axes(agrees):
    agrees(lambda a: a[:, None] - a[None, :], torch.randn(6))


def test_numbers_written_as_tensors_are_constants(agrees, x):
    traced = agrees(lambda a: a * torch.tensor(2.5) + torch.tensor([1.5]), x, single=True)
    assert len(traced.program.inputs) == 1
