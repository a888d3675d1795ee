"""Scaled dot-product attention, written out (Vaswani et al., 2017)."""

from __future__ import annotations

import math

import torch

from mirage_py.frontend.torch.handlers.contractions import contract
from mirage_py.frontend.torch.handlers.masks import position
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import composites, views
from mirage_py.ugraph.building.masked_exp import split
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.predicates import decided


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
    if enable_gqa:
        key, value = (_for_query_heads(t, x, query) for x in (key, value))
    return _attended(t, query, key, value, attn_mask, dropout_p, is_causal, scale)


@handles("_scaled_dot_product_flash_attention_for_cpu.default")
def attention_cpu(
    t: Lowering,
    query: NamedArray,
    key: NamedArray,
    value: NamedArray,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: NamedArray | None = None,
    scale: float | None = None,
) -> tuple[NamedArray | None, ...]:
    """What torch makes of an attention on a CPU; its second result is there for the gradient."""
    key, value = (_for_query_heads(t, x, query) for x in (key, value))
    return _attended(t, query, key, value, attn_mask, dropout_p, is_causal, scale), None


@handles("_scaled_dot_product_flash_attention.default")
def attention_flash(
    t: Lowering,
    query: NamedArray,
    key: NamedArray,
    value: NamedArray,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[NamedArray | None, ...]:
    """What torch makes of one on a GPU; all of its results but the first are for the gradient."""
    del return_debug_mask
    key, value = (_for_query_heads(t, x, query) for x in (key, value))
    return _attended(t, query, key, value, None, dropout_p, is_causal, scale), *[None] * 8


@handles(
    "_scaled_dot_product_efficient_attention.default",
    "_scaled_dot_product_cudnn_attention.default",
)
def attention_biased(
    t: Lowering,
    query: NamedArray,
    key: NamedArray,
    value: NamedArray,
    attn_bias: NamedArray | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[NamedArray | None, ...]:
    """With a mask, or where cuDNN is preferred; all results but the first are for the gradient."""
    del compute_log_sumexp, return_debug_mask
    key, value = (_for_query_heads(t, x, query) for x in (key, value))
    return _attended(t, query, key, value, attn_bias, dropout_p, is_causal, scale), *[None] * 8


def _attended(
    t: Lowering,
    query: NamedArray,
    key: NamedArray,
    value: NamedArray,
    mask: NamedArray | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> NamedArray:
    if dropout_p > 0:
        raise t.refuse(
            "attention with dropout is not supported",
            why="a program has no random numbers",
            repair="pass dropout_p=0.0 outside training",
        )
    width = t.shape(query)[-1]
    rank = max(len(x.axes) for x in (query, key, value))
    batch = "abcdefgh"[: rank - 2]
    terms = [batch[rank - len(x.axes) :] for x in (query, key, value)]
    scores = contract(t, [terms[0] + "ik", terms[1] + "jk"], batch + "ij", [query, key])
    scores = t.apply("mul", scores, 1.0 / math.sqrt(width) if scale is None else scale)
    if is_causal:
        scores = _kept(t, t.apply("le", position(t, scores, -1), position(t, scores, -2)), scores)
    has_keys = True
    if mask is not None:
        scores = _masked(t, scores, mask)
        has_keys = _keeps_first_key(t, scores, mask)
    # torch's attention gives a row without a key 0, where its softmax gives NaN.
    softmax = composites.softmax if has_keys else composites.safe_softmax
    weights = NamedArray(softmax(t.builder, scores.node, scores.axes[-1]), scores.axes)
    return contract(t, [batch + "ij", terms[2] + "jl"], batch + "il", [weights, value])


def _for_query_heads(t: Lowering, x: NamedArray, query: NamedArray) -> NamedArray:
    """Each key and value head serves a group of query heads that follow one another."""
    group = t.shape(query)[-3] // t.shape(x)[-3]
    if group == 1:
        return x
    return views.repeat_interleave(t.builder, x, group, -3)


def _masked(t: Lowering, scores: NamedArray, mask: NamedArray) -> NamedArray:
    node = t.node_in_hand
    operand = node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None)
    assert isinstance(operand, torch.fx.Node)
    if t.result_dtype(operand) is torch.bool:
        return _kept(t, mask, scores)
    return t.apply("add", scores, mask)


def _keeps_first_key(t: Lowering, scores: NamedArray, mask: NamedArray) -> bool:
    """Whether no row is masked as a whole, whatever the sizes: none loses its first key, as none
    does under a causal mask. What a mask of data holds is not known; a float one, minus infinities.
    """
    of_mask, masked = split(t.builder, mask.node), split(t.builder, scores.node)
    added = [t.builder.nodes[n] for n in cone(t.builder.nodes, [of_mask.finite])]
    is_data = any(n.op == "load" for n in added) or bool(masked.factors)
    first = {d: ix.const(0) for d in scores.axes[-1]}
    return not is_data and decided(masked.predicate.substitute(first)) is True


def _kept(t: Lowering, keep: NamedArray, scores: NamedArray) -> NamedArray:
    return t.apply("where", keep, scores, -math.inf)
