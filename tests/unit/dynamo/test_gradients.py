"""Forward and backward graphs: gradients are those of eager, and no tensor is detached unsaid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

Compiled = Callable[..., Any]
Lines = Callable[[str], list[str]]


def norm_product(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.silu(F.rms_norm(x, (x.shape[-1],), g, 1e-6) @ w)


def gated(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ a) * (x @ b) + x.mean()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v


def normed(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, (x.shape[-1],), g, b), approximate="tanh").tanh() + x


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


CASES = {
    norm_product: ((3, 4), (4,), (4, 5)),
    gated: ((3, 4), (4, 4), (4, 4)),
    attention: ((2, 3, 4), (2, 5, 4), (2, 5, 3)),
    normed: ((3, 4), (4,), (4,)),
    rotated: ((3, 4), (4,), (4,)),
}


def leaves(fn: Any, dtype: torch.dtype, scale: int = 1) -> list[torch.Tensor]:
    shapes = [tuple(scale * n for n in shape) for shape in CASES[fn]]
    return [torch.randn(s, dtype=dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_gradcheck_in_float64(compiled: Compiled, lines: Lines, fn: Any):
    # No kernel takes float64: the program of each region, evaluated in it, is what is checked.
    assert torch.autograd.gradcheck(compiled(fn), leaves(fn, torch.float64), eps=1e-6, atol=1e-5)
    assert lines("forward: region") != []
    assert lines("backward: region") != []


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_float32_against_eager_in_float64(compiled: Compiled, fn: Any):
    mine = leaves(fn, torch.float32, 4)
    exact = [x.detach().double().requires_grad_() for x in mine]
    got, want = compiled(fn)(*mine), fn(*exact)
    seed = torch.randn_like(want)
    got.backward(seed.float())
    want.backward(seed)
    torch.testing.assert_close(got, want.float(), atol=1e-4, rtol=1e-4)
    for x, y in zip(mine, exact, strict=True):
        torch.testing.assert_close(x.grad, y.grad.float(), atol=3e-4, rtol=1e-3)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_only_some_inputs_require_grad(compiled: Compiled, wanted: tuple[int, ...]):
    inputs = [x.detach() for x in leaves(norm_product, torch.float32, 2)]
    mine = [x.clone().requires_grad_(n in wanted) for n, x in enumerate(inputs)]
    theirs = [x.clone().requires_grad_(n in wanted) for n, x in enumerate(inputs)]
    got, want = compiled(norm_product)(*mine), norm_product(*theirs)
    assert got.requires_grad
    got.sum().backward()
    want.sum().backward()
    for n, (x, y) in enumerate(zip(mine, theirs, strict=True)):
        if n in wanted:
            torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-4)
        else:
            assert x.grad is None


def test_grad_mode_decides_at_each_call(compiled: Compiled):
    fast, inputs = compiled(gated), leaves(gated, torch.float32)
    assert fast(*inputs).requires_grad
    with torch.no_grad():
        assert not fast(*inputs).requires_grad
    with torch.inference_mode():
        assert fast(*inputs).is_inference()
    result = fast(*inputs)
    assert result.grad_fn is not None
    result.sum().backward()
    assert all(x.grad is not None for x in inputs)


def test_detach_inside_stays_detached(compiled: Compiled):
    def partly(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x @ w).relu()
        return y * 2, y.detach() * 3

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    kept, cut = compiled(partly)(x, w)
    assert kept.requires_grad
    assert not cut.requires_grad


def test_autocast_gradients_have_the_type_of_their_leaves(compiled: Compiled):
    mine = leaves(norm_product, torch.float32, 4)
    theirs = [x.detach().clone().requires_grad_() for x in mine]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = compiled(norm_product)(*mine), norm_product(*theirs)
    got.float().sum().backward()
    want.float().sum().backward()
    for x, y in zip(mine, theirs, strict=True):
        assert x.grad.dtype is torch.float32
        torch.testing.assert_close(x.grad, y.grad, atol=0.2, rtol=0.05)


def test_a_second_backward_through_a_kept_graph(compiled: Compiled):
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    y = compiled(lambda x, w: F.silu(x @ w))(x, w).sum()
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x)
    torch.testing.assert_close(first, second)


def test_the_gradient_of_a_maximum_finds_it(compiled: Compiled):
    """It goes to where x == max(x), and x computed anew is rounded otherwise."""

    def fn(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x @ w, -1)
        z = torch.where(mask, y, y * 2) * x
        return z.clone() + z.amax(-1, keepdim=True)

    mask = torch.randn(8, 16) > 0
    x, w = (torch.randn(s, requires_grad=True) for s in ((8, 16), (16, 16)))
    got, want = (
        torch.autograd.grad(f(x, w, mask).pow(2).sum(), (x, w))
        for f in (compiled(fn, min_gain=0), fn)
    )
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


def widened(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 0, dtype=torch.float64) * 1.5 + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_results_of_float64_are_float64(compiled: Compiled, dtype: torch.dtype):
    x = torch.randn(4, 4, dtype=dtype)
    torch.testing.assert_close(compiled(widened)(x), widened(x), rtol=1e-5, atol=1e-6)
