"""``x[mask]``: computed with at its places, reduced, or written back under the same mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.eager.eager_source import torch_function

_DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(4, 7, generator=_DRAWN)
Y = torch.randint(0, 3, (4, 7), generator=_DRAWN).float()
M = Y != 0
ROWS = torch.tensor([True, False, True, True])
Z = torch.randn(4, 7, 3, generator=_DRAWN)


def roots(x):
    out = torch.zeros_like(x)
    positive = x > 0
    out[positive] = x[positive].sqrt() / (x[positive] + 1)
    return out


def quotients(x, y):
    out = torch.ones_like(x)
    out[y != 0] = 1 - x[y != 0]
    return out


def overlaps(a, b):
    first, last = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    area = torch.zeros_like(first[:, 0])
    meets = (last > first).all(1)
    area[meets] = (last[meets, 0] - first[meets, 0]) * (last[meets, 1] - first[meets, 1])
    return area


def distance(x, y):
    valid = y != 0
    return F.mse_loss(x[valid], y[valid])


CASES: dict[str, tuple[Any, ...]] = {
    "written back": (roots, X),
    "under an equal mask": (quotients, X, Y),
    "the rest as well": (
        lambda x, m: x.index_put((m,), x[m].exp()).index_put((~m,), x[~m] * 3), X, M
    ),
    "added": (lambda x, m: x.index_put((m,), x[m] * 2, accumulate=True), X, ROWS),
    "boxes": (overlaps, X[:, :4], X[:, :4] + 0.3),
    "rows": (lambda x, m: torch.zeros_like(x).index_put((m,), x[m] + x[m].mean(-1, keepdim=True)),
             X, ROWS),
    "a layer": (lambda x, m, w: torch.zeros(4, 3).index_put((m,), F.linear(x[m], w)),
                X, ROWS, Z[0].T.contiguous()),
    "a mean": (lambda x, m: x[m].mean(), X, M),
    "a mean of rows": (lambda x, m: x[m].mean(0), Z, M),
    "a mean of rows and columns": (lambda x, m: x[m].mean(), Z, ROWS),
    "means of columns": (lambda x, m: x[m].mean(-1).sum(), Z, M),
    "a sum by a count": (lambda x, m: x[m].pow(2).sum() / x[m].numel(), X, M),
    "a loss": (distance, X, Y),
    "all and any": (lambda x, m: ((x[m] > -9).all(), (x[m] > 9).any()), X, M),

    "masked_select": (lambda x, m: x.masked_select(m).mean(), Z, ROWS[:, None, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_torch_does(name):
    fn, *inputs = CASES[name]
    program = trace(fn, *inputs)
    found = torch_function(program)(*inputs)
    wanted = fn(*inputs)
    pairs = (
        [(found, wanted)] if isinstance(wanted, torch.Tensor) else zip(found, wanted, strict=True)
    )
    for mine, other in pairs:
        torch.testing.assert_close(mine.to(other.dtype), other, atol=1e-5, rtol=1e-5)


def test_nothing_is_selected():
    program = trace(lambda x, m: (x[m].sum(), x[m].mean()), X, M)
    total, mean = torch_function(program)(X, torch.zeros_like(M))
    assert total == 0
    assert mean.isnan()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: x[m] * 2,
        lambda x, m: torch.cat([x[m], x[m]]).sum(),
        lambda x, m: x[m].cumsum(0).sum(),
        lambda x, m: x[m].softmax(0).sum(),
        lambda x, m: x[m] @ x[m] + x,
        lambda x, m: x.index_put((m,), x[m.flip(0)]),
        lambda x, m: x[m].amax(0) + x,
        lambda x, m: x.new_zeros(x[m].shape[0]).sum() + x,
        lambda x, m: x[m].sort().values.sum(),
    ],
)
def test_what_needs_the_shape_is_refused(fn):
    with pytest.raises(UnsupportedError, match="values"):
        trace(fn, X, M)
