"""Terms of products in an ATen graph become part of them, where they are what ``addmm`` adds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.dynamo.networks.product_terms import with_terms

_ROWS, _IN, _OUT = 6, 4, 10
W, B = torch.randn(_IN, _OUT), torch.randn(_OUT)
X = torch.randn(2, 3, _IN)


def _pieces(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    left, right = (x.view(-1, _IN) @ w).view(2, 3, _OUT).split([4, 6], -1)
    return torch.cat([torch.tanh(left + b[:4]), right + b[4:]], -1)


def _of_constants(x: torch.Tensor) -> torch.Tensor:
    left, right = (x.view(-1, _IN) @ W).view(2, 3, _OUT).split([4, 6], -1)
    return torch.tanh(left + _LEFT) * (right + _RIGHT).sum()


_LEFT, _RIGHT = torch.randn(4), torch.randn(6)


def _behind_a_view(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(b + (x.view(-1, _IN) @ w).view(2, 3, _OUT))


def _at_once(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x.view(-1, _IN) @ w) + b


def _read_twice(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x.view(-1, _IN) @ w
    return (y + b) * y


def _other_columns(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The vector is added to what was another axis."""
    return (x.view(-1, _IN) @ w[:, :6]).view(3, 12) + torch.cat([b, b])[:12]


def _one_piece_without(x: torch.Tensor) -> torch.Tensor:
    left, right = (x.view(-1, _IN) @ W).split([4, 6], -1)
    return (left + _LEFT).sum() * right


@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (_behind_a_view, 1),
        (_at_once, 1),
        (_read_twice, 0),
        (_other_columns, 0),
        (_pieces, 0),  # vectors that may change are not joined at every call
    ],
)
def test_a_vector_is_added_by_the_product(fn: Callable[..., torch.Tensor], count: int) -> None:
    module = make_fx(fn, tracing_mode="fake")(X, W, B)
    want = module(X, W, B)
    assert with_terms(module, {}) == count
    torch.testing.assert_close(module(X, W, B), want)
    targets = [str(n.target) for n in module.graph.nodes]
    assert targets.count("aten.addmm.default") == count
    assert ("aten.mm.default" in targets) == (count == 0)


@pytest.mark.parametrize(("fn", "count"), [(_of_constants, 1), (_one_piece_without, 0)])
def test_vectors_of_pieces_are_one(fn: Callable[..., torch.Tensor], count: int) -> None:
    module = make_fx(fn, tracing_mode="fake", _allow_non_fake_inputs=True)(X)
    want = module(X)
    assert with_terms(module, {}) == count
    torch.testing.assert_close(module(X), want)
    sums = [n for n in module.graph.nodes if n.target is torch.ops.aten.add.Tensor]
    assert len(sums) == 1 - count
