"""Rows computed alike on a GPU: the bits of each among 1 to 2048 others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import mirage_py

pytestmark = pytest.mark.gpu

MOST = 2048


def norm(x, g, w):
    return F.rms_norm(x, (x.shape[-1],), g, 1e-6) @ w


def mlp(x, u, w):
    return F.silu(x @ u) * (x @ w)


def decode(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def numbers(*shape):
    draw = torch.Generator("cuda").manual_seed(len(shape))
    found = torch.randn(*shape, generator=draw, device="cuda")
    return (found / 32 if shape[0] == 1024 and len(shape) == 2 else found).bfloat16()


PROGRAMS = {
    norm: ([(MOST, 1024)], [(1024,), (1024, 1536)]),
    mlp: ([(MOST, 1024)], [(1024, 2048), (1024, 2048)]),
    decode: ([(MOST, 8, 1, 64), (MOST, 2, 256, 64), (MOST, 2, 256, 64)], []),
}


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_each_row_has_the_same_bits_among_any_number(fn):
    of_rows, shared = ([numbers(*s) for s in shapes] for shapes in PROGRAMS[fn])
    dynamic = {name: {0: "rows"} for name in fn.__code__.co_varnames[: len(of_rows)]}
    kernel = mirage_py.superoptimize(invariant=True, dynamic=dynamic, budget=15, cache=False)(fn)
    everything = kernel(*of_rows, *shared)
    few = [x[:64] for x in of_rows]
    torch.testing.assert_close(everything[:64], fn(*few, *shared), atol=0.1, rtol=0.05)
    for count in (*range(1, 130), *range(130, MOST, 13), MOST - 1, MOST):
        for first in {0, (MOST - count) // 2, MOST - count}:
            some = kernel(*(x[first : first + count] for x in of_rows), *shared)
            assert torch.equal(some, everything[first : first + count]), (count, first)
