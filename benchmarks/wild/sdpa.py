"""Attention that a program spells out, as an engineer would call it: SDPA and FlexAttention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def sdpa_form(name: str) -> Callable[..., Any] | None:
    """The library's spelling of a program, None where there is none."""
    return _FORMS.get(name)


def _eager_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2).contiguous()


def _grouped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def _alibi_attention(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    steep = slopes.abs()

    def biased(score: Tensor, _b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return score + steep[h] * (s - t)

    found = flex_attention(q, k, v, score_mod=biased, block_mask=_causal(q, k))
    assert isinstance(found, Tensor)
    return found


def _capped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def capped(score: Tensor, _b: Tensor, _h: Tensor, _t: Tensor, _s: Tensor) -> Tensor:
        return 50.0 * torch.tanh(score / 50.0)

    found = flex_attention(q, k, v, score_mod=capped, block_mask=_causal(q, k))
    assert isinstance(found, Tensor)
    return found


def _ragged_decode(q: Tensor, keys: Tensor, values: Tensor, length: Tensor) -> Tensor:
    seen = torch.arange(keys.shape[2], device=q.device)[None] <= length[:, None]
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[:, None, None])


def _causal(q: Tensor, k: Tensor) -> Any:
    def seen(_b: Tensor, _h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return t >= s

    return create_block_mask(seen, None, None, q.shape[2], k.shape[2], device=str(q.device))


_FORMS: Mapping[str, Callable[..., Any]] = {
    "eager_attention": _eager_attention,
    "grouped_attention": _grouped_attention,
    "alibi_attention": _alibi_attention,
    "capped_attention": _capped_attention,
    "ragged_decode": _ragged_decode,
}
