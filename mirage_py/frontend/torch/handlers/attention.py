"""Scaled dot-product attention (Vaswani et al. 2017), written out."""

from __future__ import annotations

import math

import torch

from mirage_py.frontend.torch.handlers.contractions import contract
from mirage_py.frontend.torch.handlers.masks import position
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lowering import Lowering
from mirage_py.ugraph import composites, views
from mirage_py.ugraph.views import NamedArray


@handles("scaled_dot_product_attention.default")
def attention(
    t: Lowering,
    query: NamedArray,
    key: NamedArray,
    value: NamedArray,
    attn_mask: NamedArray | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> NamedArray:
    """softmax(query @ key.T * scale + mask) @ value over the last two axes."""
    if dropout_p > 0:
        raise t.refuse(
            "attention with dropout is not supported",
            why="a program has no random numbers",
            repair="pass dropout_p=0.0 outside training",
        )
    if enable_gqa:
        key, value = (_for_query_heads(t, x, query) for x in (key, value))
    width = t.shape(query)[-1]
    rank = max(len(x.axes) for x in (query, key, value))
    batch = "abcdefgh"[: rank - 2]
    terms = [batch[rank - len(x.axes) :] for x in (query, key, value)]
    scores = contract(t, [terms[0] + "ik", terms[1] + "jk"], batch + "ij", [query, key])
    scores = t.apply("mul", scores, 1.0 / math.sqrt(width) if scale is None else scale)
    if is_causal:
        scores = _kept(t, t.apply("le", position(t, scores, -1), position(t, scores, -2)), scores)
    if attn_mask is not None:
        scores = _masked(t, scores, attn_mask)
    weights = NamedArray(composites.softmax(t.builder, scores.node, scores.axes[-1]), scores.axes)
    return contract(t, [batch + "ij", terms[2] + "jl"], batch + "il", [weights, value])


def _for_query_heads(t: Lowering, x: NamedArray, query: NamedArray) -> NamedArray:
    """Each key and value head serves a group of query heads that follow one another."""
    group = t.shape(query)[-3] // t.shape(x)[-3]
    return views.repeat_interleave(t.builder, x, group, -3)


def _masked(t: Lowering, scores: NamedArray, mask: NamedArray) -> NamedArray:
    node = t.node_in_hand
    operand = node.args[3] if len(node.args) > 3 else node.kwargs["attn_mask"]
    assert isinstance(operand, torch.fx.Node)
    if t.result_dtype(operand) is torch.bool:
        return _kept(t, mask, scores)
    return t.apply("add", scores, mask)


def _kept(t: Lowering, keep: NamedArray, scores: NamedArray) -> NamedArray:
    return t.apply("where", keep, scores, -math.inf)
