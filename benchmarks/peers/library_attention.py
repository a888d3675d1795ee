"""The library's attention on the layouts that it likes, with norms and projections around it.

``scaled_dot_product_attention`` with each back end, flex_attention compiled, and flash attention's
own window, which has no public name. Heads that share keys and values are given both ways: as
groups that the library knows of (``_gqa``), and as more rows of fewer heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from benchmarks.peers.compiled import compiled
from benchmarks.peers.prepared import Prepared

Call = Callable[..., Any]
Heads = tuple[Tensor, Tensor, Tensor]

_EPS = 1e-6
_BACKENDS = {
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def _plain_heads(q: Tensor, k: Tensor, v: Tensor) -> Heads:
    return q, k, v


def _plain_result(heads: Tensor, *_inputs: Tensor) -> Any:
    return heads


@dataclass(frozen=True, slots=True)
class Form:
    """One way to call an attention: ``before`` makes queries, keys and values of four axes from the
    program's inputs, [batch, heads, rows, features]; ``after`` takes the result and the inputs.

    ``scale`` None is one over the root of the features. ``window`` keys are seen by a query, itself
    the last of them. Scores are capped at ``cap``.
    """

    before: Callable[..., Heads] = _plain_heads
    after: Callable[..., Any] = _plain_result
    scale: float | None = None
    causal: bool = False
    window: int | None = None
    cap: float | None = None
    grouped: bool = False


def attention_peers(program_name: str) -> dict[str, Call]:
    """Every back end in every form that may suit it."""
    if program_name not in _FORMS:
        return {}
    prepared = Prepared()
    forms = _FORMS[program_name](prepared)
    found: dict[str, Call] = {}
    for form in forms:
        suffix = "_gqa" if form.grouped and len(forms) > 1 else ""
        for name, backend in _BACKENDS.items():
            if _may_run(form, backend):
                found[name + suffix] = _sdpa(form, backend, prepared)
        if form.window is not None:
            found["flash_window"] = _flash_window(form)
    # A form that says of groups lets it read shared keys once.
    found["flex"] = _flex(forms[-1])
    return found


def prompt_peers(window: int | None) -> dict[str, Call]:
    """What runs causal attention with grouped heads, whole or in a ``window``."""
    prepared = Prepared()
    form = Form(causal=True, window=window, grouped=True)
    if window is not None:
        return {"flash_window": _flash_window(form), "flex": _flex(form)}
    backends = [b for b in _BACKENDS.items() if _may_run(form, b[1])]
    return {name: _sdpa(form, backend, prepared) for name, backend in backends}


def _may_run(form: Form, backend: SDPBackend) -> bool:
    if form.cap is not None:
        return False
    if form.window is not None and backend is SDPBackend.FLASH_ATTENTION:
        return False
    return not (form.grouped and backend is SDPBackend.EFFICIENT_ATTENTION)


def _sdpa(form: Form, backend: SDPBackend, prepared: Prepared) -> Call:
    def call(*inputs: Tensor) -> Any:
        q, k, v = form.before(*inputs)
        mask = None
        if form.window is not None:
            mask = prepared(f"window {form.window}", lambda t: _mask(t, form), inputs[0])
        with sdpa_kernel(backend):
            heads = F.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=mask,
                is_causal=form.causal and mask is None,
                scale=form.scale,
                enable_gqa=form.grouped,
            )
        return form.after(heads, *inputs)

    return call


def _mask(q: Tensor, form: Form) -> Tensor:
    assert form.window is not None
    t = torch.arange(q.shape[-2], device=q.device)
    distance = t[:, None] - t[None, :]
    return (distance >= 0) & (distance < form.window)


def _flash_window(form: Form) -> Call:
    """Heads come after rows in its tensors."""
    assert form.window is not None
    left = form.window - 1

    def call(*inputs: Tensor) -> Any:
        q, k, v = (t.transpose(1, 2) for t in form.before(*inputs))
        heads, *_ = torch.ops.aten._flash_attention_forward(  # noqa: SLF001
            q, k, v, None, None, q.shape[1], k.shape[1], 0.0, True, False,
            scale=form.scale, window_size_left=left, window_size_right=0,
        )  # fmt: skip
        return form.after(heads.transpose(1, 2), *inputs)

    return call


def _flex(form: Form) -> Call:
    window, cap = form.window, form.cap or 1.0

    def capped(score: Tensor, _b: Tensor, _h: Tensor, _t: Tensor, _s: Tensor) -> Tensor:
        return cap * torch.tanh(score / cap)

    def seen(_b: Tensor, _h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return (s <= t) if window is None else (s <= t) & (t - s < window)

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None) -> Tensor:
        found = flex_attention(
            q,
            k,
            v,
            score_mod=capped if form.cap is not None else None,
            block_mask=mask,
            scale=form.scale,
            enable_gqa=form.grouped,
        )
        assert isinstance(found, Tensor)
        return found

    fast = compiled(attend)
    masks: dict[tuple[object, ...], BlockMask] = {}

    def call(*inputs: Tensor) -> Any:
        q, k, v = form.before(*inputs)
        mask = None
        if form.causal:
            key = (q.shape[2], k.shape[2], q.device)
            if key not in masks:
                masks[key] = create_block_mask(seen, None, None, *key[:2], device=q.device)
            mask = masks[key]
        return form.after(fast(q, k, v, mask), *inputs)

    return call


# -- what stands around it -------------------------------------------------------------------------


def _bare_norms(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return F.rms_norm(q, q.shape[-1:], eps=_EPS), F.rms_norm(k, k.shape[-1:], eps=_EPS)


def _norms(q: Tensor, k: Tensor, gq: Tensor, gk: Tensor) -> tuple[Tensor, Tensor]:
    return F.rms_norm(q, gq.shape, gq, _EPS), F.rms_norm(k, gk.shape, gk, _EPS)


def _norm(q: Tensor, g: Tensor) -> Tensor:
    return F.rms_norm(q, g.shape, g, _EPS)


def _split_heads(q: Tensor, k: Tensor, v: Tensor) -> Heads:
    """Groups of query heads [b, g, r, d] as g * r heads of one row."""
    return q.flatten(1, 2).unsqueeze(2), k, v


def _joined_heads(heads: Tensor, q: Tensor, *_others: Tensor) -> Tensor:
    return heads.reshape(q.shape)


def _out_projection(heads: Tensor, *inputs: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2) @ inputs[-1].flatten(0, 1)


def _first_batch(heads: Tensor, *_inputs: Tensor) -> Tensor:
    return heads[0]


# -- the programs ----------------------------------------------------------------------------------


def _attention(prepared: Prepared) -> tuple[Form, ...]:
    """The program's keys are [heads, features, keys]."""

    def before(q: Tensor, k: Tensor, v: Tensor) -> Heads:
        rows = prepared("rows", lambda t: t.transpose(-1, -2).contiguous(), k)
        return q[None], rows[None], v[None]

    return (Form(before, _first_batch, scale=1.0),)


def _qknorm_attention(_prepared: Prepared) -> tuple[Form, ...]:
    norms = compiled(_bare_norms)

    def before(q: Tensor, k: Tensor, v: Tensor) -> Heads:
        q, k = norms(q, k)
        return q[None], k[None], v[None]

    return (Form(before, _first_batch, scale=1.0),)


def _token_attention(_prepared: Prepared) -> tuple[Form, ...]:
    return (Form(), Form(_split_heads, _joined_heads, grouped=True))


def _qknorm_token_attention(_prepared: Prepared) -> tuple[Form, ...]:
    norm = compiled(_norm)

    def folded(q: Tensor, n: Tensor, k: Tensor, v: Tensor) -> Heads:
        return norm(q, n), k, v

    def split(q: Tensor, n: Tensor, k: Tensor, v: Tensor) -> Heads:
        return _split_heads(norm(q, n), k, v)

    return (Form(folded), Form(split, _joined_heads, grouped=True))


def _qknorm_attention_out(_prepared: Prepared) -> tuple[Form, ...]:
    norms = compiled(_norms)

    def before(q: Tensor, k: Tensor, v: Tensor, gq: Tensor, gk: Tensor, _w: Tensor) -> Heads:
        return (*norms(q, k, gq, gk), v)

    return (Form(before, _out_projection),)


_FORMS: Mapping[str, Callable[[Prepared], tuple[Form, ...]]] = {
    "attention": _attention,
    "qknorm_attention": _qknorm_attention,
    "decode_attention": _token_attention,
    "token_attention": _token_attention,
    "qknorm_token_attention": _qknorm_token_attention,
    "prompt_attention": lambda _: (Form(causal=True, grouped=True),),
    "causal_attention": lambda _: (Form(causal=True),),
    "sliding_window_attention": lambda _: (Form(causal=True, window=1024),),
    "softcap_attention": lambda _: (Form(causal=True, cap=50.0),),
    "qknorm_attention_out": _qknorm_attention_out,
}
