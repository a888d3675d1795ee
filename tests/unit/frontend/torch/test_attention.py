from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor


def qkv(heads: int = 3, kv_heads: int = 3, queries: int = 5, keys: int = 7):
    torch.manual_seed(3)
    return (
        torch.randn(2, heads, queries, 8),
        torch.randn(2, kv_heads, keys, 8),
        torch.randn(2, kv_heads, keys, 6),
    )


OPTIONS = [
    {},
    {"is_causal": True},
    {"scale": 0.3},
    {"attn_mask": torch.randn(5, 7)},
    {"attn_mask": torch.ones(5, 7).tril(2).bool()},
    {"attn_mask": torch.ones(2, 1, 5, 7).tril(2).bool()},
]


@pytest.mark.parametrize(
    "options", OPTIONS, ids=["plain", "causal", "scale", "float", "bool", "bool4"]
)
def test_options(agrees, options):
    agrees(F.scaled_dot_product_attention, *qkv(), **options)


# Rows without a key: the first row of the second sequence, its first three, all of it.
PADDED = torch.ones(2, 1, 5, 7).bool()
PADDED[1, :, 0] = False
LEFT = torch.ones(2, 1, 5, 7).tril().bool() & (
    torch.arange(7) >= torch.tensor([0, 3])[:, None, None, None]
)
INFINITE = torch.zeros(2, 1, 5, 7).masked_fill(~LEFT, -torch.inf)
LOWEST = torch.zeros(2, 1, 5, 7).masked_fill(~LEFT, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("mask", [PADDED, LEFT, INFINITE], ids=["row", "left", "infinite"])
def test_rows_without_a_key_are_zero(agrees, mask):
    agrees(F.scaled_dot_product_attention, *qkv(), attn_mask=mask)
    agrees(F.scaled_dot_product_attention, *qkv(6, 2), attn_mask=mask, enable_gqa=True)


def test_a_row_of_lowest_numbers_is_a_mean(agrees):
    # No row of it is without a key: all keys are masked alike.
    q, k, v = qkv()
    agrees(F.scaled_dot_product_attention, q, k, v, attn_mask=LOWEST, single=True)


@pytest.mark.parametrize("mask", [LEFT, INFINITE], ids=["bool", "float"])
def test_a_plain_softmax_of_nothing_stays_nan(agrees, mask):
    def fn(q, k, v, mask):
        scores = q @ k.mT
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
        )
        return scores.softmax(-1) @ v

    agrees(fn, *qkv(), mask)


def test_a_window_that_leaves_rows_empty(agrees):
    def fn(q, k, v):
        rows, columns = torch.arange(9)[:, None], torch.arange(4)[None]
        window = (columns <= rows) & (columns > rows - 3)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=window)

    traced = agrees(fn, *qkv(queries=9, keys=4))
    assert "reciprocal_no_nan" in [n.op for n in traced.program.nodes]


def test_a_causal_mask_needs_no_guard(agrees):
    def fn(q, k, v):
        mask = torch.ones(5, 7, dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def added(q, k, v):
        mask = torch.zeros(5, 7).masked_fill(torch.ones(5, 7).tril() == 0, -torch.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    for spelling in (fn, added):
        traced = agrees(spelling, *qkv(), single=True)
        assert "reciprocal_no_nan" not in [n.op for n in traced.program.nodes]


def test_ranks(agrees):
    q, k, v = qkv()
    agrees(F.scaled_dot_product_attention, q[0, 0], k[0, 0], v[0, 0])
    agrees(F.scaled_dot_product_attention, q[0], k[0], v[0])


def test_groups_of_heads(agrees):
    traced = agrees(F.scaled_dot_product_attention, *qkv(6, 2), is_causal=True, enable_gqa=True)
    # A group shares keys and values: they must not depend on the head within the group.
    loads = [n for n in traced.program.nodes if n.op == "load"]
    assert sorted(len(n.dims) for n in loads) == [4, 4, 5]


def test_groups_of_heads_by_repetition(agrees):
    def fn(q, k, v):
        k, v = k.repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1)
        return F.scaled_dot_product_attention(q, k, v)

    def by_expand(q, k, v):
        b, h, t, _ = k.shape
        k = k[:, :, None].expand(b, h, 3, t, 8).reshape(b, h * 3, t, 8)
        v = v[:, :, None].expand(b, h, 3, t, 6).reshape(b, h * 3, t, 6)
        return F.scaled_dot_product_attention(q, k, v)

    for spelling in (fn, by_expand):
        traced = agrees(spelling, *qkv(6, 2))
        loads = [n for n in traced.program.nodes if n.op == "load"]
        assert sorted(len(n.dims) for n in loads) == [4, 4, 5]


def test_one_query(agrees):
    agrees(F.scaled_dot_product_attention, *qkv(queries=1))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def test_rotary_embedding(agrees):
    q, k, _ = qkv(keys=5)
    agrees(
        lambda q, k, c, s: rotated(q, c, s) @ rotated(k, c, s).mT,
        q,
        k,
        torch.randn(5, 8),
        torch.randn(5, 8),
    )


def test_interleaved_rotary_embedding(agrees):
    def fn(x, cos, sin):
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    agrees(fn, qkv()[0], torch.randn(5, 4), torch.randn(5, 4))


def test_normalised_queries_and_keys(agrees):
    def fn(q, k, v, g):
        q, k = F.rms_norm(q, (8,), g, 1e-6), F.rms_norm(k, (8,), g, 1e-6)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    agrees(fn, *qkv(), torch.randn(8))


@pytest.mark.parametrize("kv_heads", [3, 1])
def test_what_torch_makes_of_an_attention(agrees, kv_heads):
    # The operators that AOTAutograd sees. Only the one for CPUs can be run here in float64.
    cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    q, k, _ = qkv(kv_heads=kv_heads)
    agrees(lambda q, k, v: cpu(q, k, v[..., :8])[0], q, k, torch.randn(2, kv_heads, 7, 8))
    bias = torch.randn(2, 1, 5, 7)
    agrees(
        lambda q, k, v, b: cpu(q, k, v, 0.0, False, attn_mask=b, scale=0.3)[0],
        q, k, torch.randn(2, kv_heads, 7, 8), bias,
    )  # fmt: skip


def test_the_attention_of_gpus_is_the_same_program():
    from mirage_py.frontend.torch import HANDLERS

    families = {
        HANDLERS[f"aten._scaled_dot_product_{name}_attention.default"].handler.__name__
        for name in ("flash", "efficient", "cudnn")
    }
    assert sorted(families) == ["attention_biased", "attention_flash"]
