"""Integers as data: masks, quantised weights, labels; and what would wrap around."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.eager.eager_source import torch_function

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: x.masked_fill(m[:, None] == 0, -1e4).softmax(-1),
        lambda x, m: (x + (1 - m[:, None].float()) * -1e4).softmax(-1),
        lambda x, m: torch.where(m[:, None] > 1, x, -x) * m.to(x.dtype)[:, None],
        lambda x, m: (x * m[:, None]).sum(-1) / m.sum(-1)[:, None],
        lambda x, m: x * (m[:, None] != m[:, :1, None]),
        lambda x, m: x + m.bool()[:, None] * m.max(),
    ],
)
def test_numbers(agrees, x, fn, dtype):
    m = torch.tensor([[0, 1, 1, 3, 0, 1, 2], [1, 1, 0, 0, 2, 1, 1], [1, 0, 0, 0, 0, 0, 0]])
    traced = agrees(fn, x, m.to(dtype), single=True)
    got = torch_function(traced.program)(*traced.inputs([x, m.to(dtype)]))
    torch.testing.assert_close(got, fn(x, m.to(dtype)), atol=1e-5, rtol=1e-5)


def test_quantised_weights(agrees):
    w = torch.randint(-128, 128, (6, 8), dtype=torch.int8)
    x, s = torch.randn(3, 8), torch.rand(6)
    agrees(lambda x, w, s: F.linear(x, w.to(x.dtype)) * s, x, w, s)
    # bfloat16 holds every number of eight bits: nothing is rounded, and no cast is left.
    program = trace(lambda x, w: F.linear(x, w.to(x.dtype)), x.bfloat16(), w)
    assert all(n.op != "cast" for n in program.nodes)
    program = trace(lambda x, w: F.linear(x, w.to(x.dtype)), x.bfloat16(), w.long())
    assert any(n.op == "cast" for n in program.nodes)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: x * (m + m).float(),
        lambda x, m: x * m.sum(-1, keepdim=True, dtype=torch.int8),
        lambda x, m: x * (-m).float(),
        lambda x, m: x * m.to(torch.uint8).to(torch.int64),
        lambda x, m: x * (m.to(torch.int32) @ m.to(torch.int32).T @ m.to(torch.int32)),
    ],
)
def test_what_would_wrap_around_is_refused(fn):
    m = torch.ones(4, 4, dtype=torch.int8)
    with pytest.raises(UnsupportedError):
        trace(fn, torch.randn(4, 4), m)


def test_what_cannot_wrap_around_is_taken(agrees):
    m = torch.tensor([[True, False, True], [True, True, False]])
    x = torch.randn(2, 3)
    agrees(lambda x, m: x * (m.to(torch.int8) - 1), x, m)
    i = torch.tensor([[1, 2, 3], [-128, 127, 0]], dtype=torch.int8)
    agrees(lambda x, i: x * (i.int() * i.int() - i), x, i)


def test_floats_as_integers(agrees):
    x = torch.tensor([[2.7, -2.7, 0.3], [-0.9, 5.0, 100.2]])
    agrees(lambda x: x - x.long(), x, single=True)
    agrees(lambda x: x.int() * 0.5, x, single=True)
    agrees(lambda x: x.round().clamp(-128, 127).to(torch.int8) * 0.1, x, single=True)
    agrees(
        lambda x, w: F.linear(x.round().clamp(-8, 7).to(torch.int8).float(), w), x, x, single=True
    )
    with pytest.raises(UnsupportedError, match="int8"):
        trace(lambda x: x.to(torch.int8) * 0.1, x)
