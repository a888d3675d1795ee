"""Sums and writes at many positions that are data, against torch; numbers in order; computed
positions.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.rewrite.dims import with_shared_reads


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def whole(below: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(below))


def order(n: int) -> torch.Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(n))


X, MANY, SOURCE = drawn(6, 8), whole(5, 14, 8), drawn(14, 8)  # nothing is meant for the last row
EDGES = torch.tensor([0.0, 0.5, -1.0, 2.0, torch.nan, torch.inf, -torch.inf])
LIMITS = torch.linspace(-1, 1, 5)
ROWS = drawn(5, 6, 2)


def penalised(scores, ids):
    found = scores.gather(1, ids)
    return scores.scatter(1, ids, torch.where(found < 0, found * 1.2, found / 1.2))


def nucleus(scores):
    values, places = scores.sort()
    gone = values.softmax(-1).cumsum(-1) <= 0.1
    return scores.masked_fill(torch.zeros_like(gone).scatter(1, places, gone), -1e9)


CASES: dict[str, tuple[Any, ...]] = {
    "repetition penalty": (penalised, drawn(2, 64), whole(64, 2, 20)),
    "nucleus": (nucleus, drawn(2, 40)),
    "one number": (lambda x, i: x.scatter(1, i, 1.0), drawn(4, 16), whole(16, 4, 12)),
    "the last of several": (lambda x, i, v: x.scatter(1, i, v), drawn(2, 8), whole(8, 2, 20),
                            drawn(2, 20)),
    "fewer rows, a longer source": (
        lambda x, i, v: x.scatter(1, i, v), drawn(4, 16), torch.stack([order(16)[:10]] * 2),
        drawn(3, 12),
    ),
    "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), X, MANY, SOURCE),
    "scatter_add of fewer rows": (lambda x, i, s: x.scatter_add(1, i, s), X, whole(8, 4, 14),
                                  drawn(5, 20)),
    "index_add": (lambda x, i, s: x.index_add(0, i, s, alpha=2), X, MANY[:, 0], SOURCE),
    "index_add along the last axis": (lambda x, i, s: x.index_add(-1, i, s), X, whole(8, 14),
                                      drawn(6, 14)),
    "counts": (lambda i: torch.zeros(8, dtype=torch.int64).scatter_add(0, i, torch.ones_like(i)),
               whole(8, 40)),
    "means of segments": (
        lambda x, i: torch.zeros(4, 8).index_add(0, i, x)
        / torch.zeros(4).index_add(0, i, torch.ones(14)).clamp(min=1)[:, None],
        SOURCE, whole(4, 14),
    ),
    "index_put": (lambda x, i, v: x.index_put((i,), v), drawn(20, 4), order(20)[:12],
                  drawn(12, 4)),
    "index_put, from the back": (lambda x, i, v: x.index_put((i - 20,), v), drawn(20, 4),
                                 order(20)[:12], drawn(12, 4)),
    "index_put, two indices": (lambda x, i, j, v: x.index_put((i, j), v), drawn(6, 20, 3),
                               whole(6, 12), order(20)[:12], drawn(12, 3)),
    "index_put, accumulated": (lambda x, i, v: x.index_put((i,), v, accumulate=True),
                               drawn(20, 4), whole(20, 12), drawn(12, 4)),
    "index_copy": (lambda x, i, v: x.index_copy(1, i, v), drawn(4, 24, 3), order(24)[:12],
                   drawn(4, 12, 3)),
    **{
        f"{kind}{', itself too' * itself}": (
            lambda x, i, s, kind=kind, itself=itself:
                x.scatter_reduce(0, i, s, kind, include_self=itself), X, MANY, SOURCE,
        )
        for kind in ("sum", "mean", "amax", "amin") for itself in (False, True)
    },
    "rows of an argmin": (
        lambda x, w: F.embedding(torch.cdist(x, w).argmin(-1), w), drawn(4, 8), drawn(16, 8)
    ),
    "the last token": (lambda x, i: x[torch.arange(4), (i != 0).sum(1) - 1], drawn(4, 8, 3),
                       whole(2, 4, 8)),
    "two computed positions": (lambda x, y: x[y.argmax(-1), y.argmin(-1)], ROWS, drawn(3, 5)),
    "a computed position in front": (lambda x, y: x[y.argmax(-1), torch.arange(3)], ROWS,
                                     drawn(3, 5)),
    "index_select in order": (lambda x, y: x.index_select(1, y.argsort()), ROWS, drawn(6)),
    "bucketize": (lambda x, b: (torch.bucketize(x, b), torch.bucketize(x, b, right=True)),
                  EDGES, LIMITS),
    "searchsorted": (torch.searchsorted, LIMITS, drawn(3, 4)),
    "searchsorted of rows": (lambda b, x: torch.searchsorted(b, x, side="right"),
                             drawn(4, 9).sort(-1).values, drawn(4, 3)),
    "searchsorted of integers": (lambda b, x: torch.searchsorted(b, x, right=True),
                                 torch.tensor([0, 3, 7, 2**40]), torch.tensor([3, 6, 2**40 - 1])),
    "kthvalue": (lambda x: x.kthvalue(2, 0), drawn(4, 5)),
    "kthvalue, kept": (lambda x: x.kthvalue(5, keepdim=True), drawn(4, 5)),
    "cdist": (torch.cdist, drawn(2, 4, 5), drawn(2, 6, 5)),
    "cdist of many rows": (torch.cdist, drawn(2, 40, 5), drawn(2, 6, 5)),
    "cdist, 1": (lambda x, y: torch.cdist(x, y, p=1), drawn(4, 5), drawn(6, 5)),
    "prod": (lambda x: (x.prod(-1), x.prod(0, keepdim=True), (x > 0).prod(-1)), drawn(4, 7)),
    "prod of all": (lambda x: x.prod(), drawn(4, 3)),
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
        torch.testing.assert_close(
            mine.to(other.dtype), other, atol=1e-5, rtol=1e-5, equal_nan=True
        )


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x, i: x.scatter_reduce(0, i[:6, None] * 0 + i[:8], x, "prod"), "scatter_reduce"),
        (lambda x, i: x[:, 0].index_add(0, i, x.new_ones(600)), "600"),
        (lambda x, i: x.reshape(-1)[:20].prod() + i, "product"),
    ],
)
def test_what_is_still_refused(fn, what):
    with pytest.raises(UnsupportedError, match=what):
        trace(fn, X, whole(6, 600))


def test_a_long_table_is_no_sum():
    """Each element is compared with each place of the table: up to a limit."""
    with pytest.raises(UnsupportedError, match="position"):
        trace(lambda x, w: w[x.argmax(-1)] * 2, drawn(3, 600), drawn(600, 4))


def softmax_of_segments(x, i):
    rows = i[:, None].expand_as(x)
    top = x.new_zeros(6, x.shape[1]).scatter_reduce(0, rows, x, "amax", include_self=False)[i]
    powers = (x - top).exp()
    return powers / (x.new_zeros(6, x.shape[1]).index_add(0, i, powers)[i] + 1e-16)


def test_what_is_stored_is_read_by_other_names_of_its_dimensions():
    """Both sums read the same positions, and the second one what the first has stored."""
    x, i = drawn(14, 4), whole(6, 14)
    program = with_shared_reads(trace(softmax_of_segments, x, i))
    assert any(node.op == "read" for node in program.nodes)
    torch.testing.assert_close(torch_function(program)(x, i), softmax_of_segments(x, i))
