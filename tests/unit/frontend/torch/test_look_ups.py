"""Reads at positions that are data: embeddings, gathers, indices, and losses of labels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.checks.validate import validate_program

N, V, D = 5, 11, 6
# Equal ones, both ends.
Y = torch.tensor([3, 0, 10, 3, 7])
IGNORED = torch.tensor([3, -100, 10, -100, 0])
IDS = torch.tensor([[1, 1, 10], [0, 4, 9]])


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


X, W = drawn(N, V), drawn(V, D)
KEEP = torch.tensor([[True, False, True], [False, True, True]])

READS: dict[str, tuple[Any, ...]] = {
    "embedding and norm": (lambda i, w: F.layer_norm(F.embedding(i, w), (D,)), IDS, W),
    "embedding and product": (lambda i, w, u: F.embedding(i, w) @ u, IDS, W, drawn(D, 4)),
    "products with rows of weights": (
        lambda x, i, w: torch.bmm(x[:, None], w[i])[:, 0], drawn(3, 4), Y[:3], drawn(11, 4, 5)
    ),
    "convolution with looked-up weights": (
        lambda x, i, w: F.conv1d(x, w[i], padding=1), drawn(2, 3, 8), Y[:2] % 4, drawn(4, 3, 3)
    ),
    "two embeddings": (lambda i, j, w, v: w[i] + v[j], IDS, IDS % 4, W, drawn(4, D)),
    "index_select": (lambda x, i: x.index_select(1, i) * 2, X, Y[:3].int()),
    "gather": (lambda x, i: x.gather(1, i) * 2, X, IDS + 0),
    "gather of a middle axis": (lambda x, i: x.gather(1, i) * 2, drawn(2, 11, 3), IDS[:, None]),
    "gather of the first axis": (lambda x, i: x.gather(0, i) * 2, W, IDS),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 1) * 2, X, IDS[:1]),
    "negative": (lambda x, i: x[i] * 2, X, torch.tensor([-1, 0, -5])),
    "two indices": (lambda x, i, j: x[i, j] * 2, X, IDS[:, :1] % 5, -IDS - 1),
    "indices apart": (lambda x, i, j: x[i, :, j] * 2, drawn(3, 4, 5), Y[:2] % 3, Y[:2] % 5),
    "a middle axis": (lambda x, i: x[:, i] * 2, drawn(2, 11, 3), IDS),
    "known rows": (lambda x, y: x[torch.arange(N), y] * 2, X, Y),
    "an offset": (lambda i, w: F.embedding(i + 2, w) * 2, IDS % 8 - 2, W),
    "a choice": (lambda i, k, w: F.embedding(i.masked_fill(~k, 0), w) * 2, IDS, KEEP, W),
    "clamped": (lambda i, w: F.embedding(i.clamp(2, V - 1), w) * 2, IDS * 3 - 4, W),
    "of positions": (lambda b, i, w: F.embedding(b[i], w) * 2, Y, IDS % 5, W),
    "rotary rows": (lambda x, c, p: x * c[p][:, None], drawn(2, 2, 3, D), W, IDS),
    "of joined columns in one axis": (
        lambda x, i: torch.cat([x[:, :2] * 2, x[:, -2:] * 3], 1)[:, :2].reshape(-1)[i],
        X, torch.tensor([0, 1, 2, 7, 9, -1, -10]),
    ),
    "of joined rows in one axis": (
        lambda x, i: torch.cat([x[:2] * 2, x[2:] * 3])[:, :4].reshape(-1)[i - 3],
        X, torch.tensor([0, 7, 10, 11, 19]),
    ),
    # What an order has in memory is computed again at positions that are data.
    "beside an order": (
        lambda x, i: (x.softmax(-1).sort().values, x.softmax(-1)[:, i]), X, Y[:3]
    ),
    "a remainder of a number": (lambda x, i: torch.remainder(8, x[i].abs() + 1), X, Y[:3] % 5),
    "a ring": (lambda x, p: x[:, (p + 3) % 8] * 2, X, torch.tensor([11, -3, 2**40 + 1])),
    "pages": (lambda x, b, p: x[b.gather(1, p // 4), p % 4] * 2, drawn(6, 4, 3), IDS[:, :2] % 6,
              torch.tensor([[7, 0, 3], [1, 5, 4]])),
    "slots from the back": (lambda x, s: x[s // 4, s % 4] * 2, drawn(6, 4, 3), Y - 24),
    "written into a ring": (lambda x, p, k: x.index_copy(1, (p - 9) % 8, k), drawn(2, 8, 3),
                            torch.tensor([2**40 + 11]), drawn(2, 1, 3)),
    "written into pages": (lambda x, s, k: x.index_put((s // 4, s % 4), k), drawn(6, 4, 3),
                           torch.tensor([23, -24, 9], dtype=torch.int32), drawn(3, 3)),
    "of log-probabilities": (lambda x, y: F.log_softmax(x, -1).gather(-1, y[:, None]), X, Y),
    "of masked rows": (
        lambda x, i: x.masked_fill(torch.ones(N, V).triu(1).bool(), -1e4).softmax(-1)[i],
        X, torch.tensor([1, -1, 0]),
    ),
    "of a product": (
        lambda x, w, y: (x @ w.T).gather(1, y[:, None])[:, 0] - (x @ w.T).logsumexp(-1),
        drawn(N, D), W, Y,
    ),
    "of columns of columns": (lambda w, i: w.view(V, 2, 3)[:, :, i].flatten(1) * 2, W, Y[:2] % 3),
    "a table in blocks": (lambda w, i: w.reshape(-1)[i] * 2, W, IDS * 5),
    "positions of positions": (lambda i: i[i] * 1.0, Y % 5),
    "gather of what is largest": (lambda x, b: x.sigmoid().gather(1, (x + b).topk(3)[1]), X, X[0]),
    "gather of what is largest, in front": (
        lambda x, w: (x @ w).gather(0, (x @ w).argmin(0, keepdim=True).expand(2, D)), X, W
    ),
    "gather beside infinities": (
        lambda x: x.exp().gather(1, x.argmin(1, keepdim=True)), torch.where(X > 0.5, torch.inf, X)
    ),
}  # fmt: skip

LOSSES: dict[str, tuple[Any, ...]] = {
    "mean": (F.cross_entropy, X, IGNORED),
    "sum": (lambda x, y: F.cross_entropy(x, y, reduction="sum"), X, IGNORED),
    "none": (lambda x, y: F.cross_entropy(x, y, reduction="none"), X, IGNORED),
    "a class ignored": (lambda x, y: F.cross_entropy(x, y, ignore_index=3), X, Y),
    "smoothed": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), X, IGNORED),
    "weighted": (lambda x, y, w: F.cross_entropy(x, y, weight=w), X, IGNORED, drawn(V).abs()),
    "weighted and smoothed": (
        lambda x, y, w: F.cross_entropy(x, y, weight=w, label_smoothing=0.2),
        X, IGNORED, drawn(V).abs(),
    ),
    "of pixels": (F.cross_entropy, drawn(2, V, 3), IDS),
    "of one row": (F.cross_entropy, X[0], Y[0]),
    "of probabilities": (
        lambda x, y: F.cross_entropy(x, y.softmax(-1), label_smoothing=0.1), X, X.flip(0)
    ),
    "shifted": (
        lambda x, y: F.cross_entropy(x[:, :-1].reshape(-1, V), y[:, 1:].reshape(-1)),
        drawn(2, 3, V), IDS,
    ),
    "nll_loss": (lambda x, y: F.nll_loss(F.log_softmax(x, -1), y), X, IGNORED),
    "nll_loss of pixels": (lambda x, y: F.nll_loss(x, y, reduction="sum"), drawn(2, V, 3, 1),
                           IDS[..., None]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*READS, *LOSSES])
def test_as_torch_does(agrees, name):
    fn, *inputs = {**READS, **LOSSES}[name]
    traced = agrees(fn, *inputs)
    validate_program(traced.program)
    got = torch_function(traced.program)(*traced.inputs(inputs))
    torch.testing.assert_close(got, fn(*inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_types_of_tables_and_positions(agrees, half, dtype):
    agrees(lambda i, w: w[i].float() * 2, IDS.to(dtype), W.to(half), single=True)


@pytest.mark.parametrize(
    ("fn", "inputs", "what"),
    [
        (lambda x, m: x[m] * 2, (X, X > 0), "truth values"),
        (lambda x, i: x[(i // 3)] * 2, (X, Y), "position|division"),
        (lambda x, i: x[(i % 6)] * 2, (X, Y), "position|division"),
        (lambda x, i: x[i * i] * 2, (X, Y), "position"),
    ],
)
def test_other_positions_are_refused(fn, inputs, what):
    with pytest.raises(UnsupportedError, match=what):
        trace(fn, *inputs)


def test_no_position_is_outside():
    """Torch raises; a kernel reads some row of the table, and nothing else."""
    program = trace(lambda i, w: w[i] * 2, IDS, W)
    ids = torch.tensor([[V, -V - 1, 2**62], [-(2**63), 2**63 - 1, 5]])
    found = torch_function(program)(ids, W)
    torch.testing.assert_close(found, W[ids % V] * 2)


def test_lists_are_indices(agrees):
    x = torch.randn(4, 3)
    agrees(lambda x: x[:, [1, 0, 2, 1]].sin(), x)
    agrees(lambda x: x.view(2, 6)[:, [0, 4, 1]].reshape(-1) + x[[3, 2], [0, 1]].sum(), x)
    held = torch.tensor([1, 0])

    class Holder:
        order = held

    # A tensor that somebody holds may change between calls.
    with pytest.raises(UnsupportedError, match="a constant tensor"):
        trace(lambda x: x[Holder.order], x)
