"""Results have the strides that eager's have, so a later view of them is one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from frontend_kernels import Interpreter

from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction

X = torch.randn(2, 3, 4, 6)


def heads_first(x):
    return (x * 2).transpose(1, 2)


def of_a_transposed(x):
    return torch.relu(x.permute(3, 1, 0, 2))


def matrix(x):
    return (x + 1).flatten(0, 2).T


def with_ones(x):
    return (x[:, :1] * 2).transpose(1, 3)


def merged(x):
    return x.transpose(1, 2).reshape(2, 4, 18) * 2


def several(x):
    y = x * 2
    return {"a": y.mT, "b": y, "c": (y.movedim(0, 2), None)}


def attention(x):
    return F.scaled_dot_product_attention(x, x, x).transpose(1, 2)


def channels_last(x):
    return torch.relu(x.to(memory_format=torch.channels_last))


def masked_in_place(x):
    return (x * 2).transpose(1, 3).masked_fill_(x[:, :1, :1].transpose(1, 3) > 0, 0.0)


def triangle_in_place(x):
    return (x * 2).mT.tril_(), (x * 2).mT.masked_fill(x.mT > 0, 1.0)


DENSE = [
    heads_first, of_a_transposed, matrix, with_ones, merged, several, attention, channels_last,
    masked_in_place, triangle_in_place,
]  # fmt: skip


@pytest.mark.parametrize("fn", DENSE, ids=lambda f: f.__name__)
def test_strides_are_those_of_eager(fn):
    served = SuperoptimizedFunction(fn, CallOptions(strict=True), Interpreter())
    for _ in range(3):
        got, want = (torch.utils._pytree.tree_flatten(f(X)) for f in (served, fn))
        assert got[1] == want[1]
        for mine, theirs in zip(got[0], want[0], strict=True):
            if isinstance(theirs, torch.Tensor):
                assert mine.stride() == theirs.stride()
                torch.testing.assert_close(mine, theirs)


def test_a_view_of_a_result():
    served = SuperoptimizedFunction(heads_first, CallOptions(strict=True), Interpreter())
    torch.testing.assert_close(
        served(X).transpose(1, 2).view(2, 72), heads_first(X).mT.mT.transpose(1, 2).view(2, 72)
    )


@pytest.mark.parametrize(
    "fn",
    [lambda x: (x * 2)[..., ::2].mT, lambda x: (x * 2).sum(1, keepdim=True).expand(2, 3, 4, 6)],
    ids=["sliced", "expanded"],
)
def test_what_is_not_dense_has_its_values(fn):
    served = SuperoptimizedFunction(fn, CallOptions(strict=True), Interpreter())
    for _ in range(2):
        torch.testing.assert_close(served(X), fn(X))
