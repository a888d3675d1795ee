"""Matmuls of an ATen graph fused with the code around them.

A matmul with a constant weight is a pointwise convolution over the rows of its operand. It is fused
with an added vector or tensor, and with a relu or a GELU after it. Nothing is decided here. Matmuls
of one row are left alone: they are sums, which compilers fuse with more code than this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mirage_py.dynamo.networks.convolution_kernels import TYPES, Constants, Match
from mirage_py.ugraph.ir.convolution import FusedConvolution

_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.addmm.default)
_VIEWS = (
    _aten.view.default,
    _aten.reshape.default,
    _aten._unsafe_view.default,  # noqa: SLF001  the name of an operator
)


def product_matches(module: GraphModule, constants: Mapping[str, torch.Tensor]) -> list[Match]:
    """What could be kernels, no node in two of them; ``constants`` are the placeholders' tensors
    that are weights.
    """
    known = Constants(module, constants)
    found: list[Match] = []
    taken: set[Node] = set()
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in _PRODUCTS and not node.kwargs:
            match = _match(node, known, taken)
            if match is not None:
                found.append(match)
    return found


def _match(node: Node, known: Constants, taken: set[Node]) -> Match | None:
    arguments: tuple[Any, ...] = node.args
    image, second = arguments[-2:]
    weight = known.of(second)
    value = node.meta["val"]
    if weight is None or value.dtype not in TYPES or not _is_packed(image.meta["val"]):
        return None
    bias: torch.Tensor | None = None
    if len(arguments) == 3:
        bias = known.of(arguments[0])
        if bias is None or bias.shape != value.shape[1:]:
            return None
    rows, inside = image.meta["val"].shape
    if rows == 1:
        return None
    shapes = (1, inside, rows, 1), (value.shape[1], inside, 1, 1)
    bare = FusedConvolution.of(*shapes, ((1, 1), (0, 0), (1, 1)), 1, TYPES[value.dtype])
    residual, after, last, inner = _around(node, taken)
    taken.update(inner)
    spec = replace(
        bare,
        has_bias=bias is not None,
        has_residual=residual is not None,
        relu_after=after is _aten.relu.default,
        gelu_after=after is _aten.gelu.default,
        **_lies(image.meta["val"]),
    )
    return Match(spec, image, weight.t()[:, :, None, None], bias, residual, last, is_rows=True)


def _around(node: Node, taken: set[Node]) -> tuple[Node | None, Any, Node, list[Node]]:
    """A tensor that is added, the function after it, the last of them, and all of them."""
    residual: Node | None = None
    at, last, inner = node, node, list[Node]()
    pending: list[Node] = []
    while len(at.users) == 1:
        (user,) = at.users
        target, width = user.target, node.meta["val"].shape[1]
        if user.op != "call_function" or user in taken or user.kwargs:
            break
        if target in _VIEWS and user.meta["val"].shape[-1] == width:
            pending.append(user)
            at = user
            continue
        if target in (_aten.relu.default, _aten.gelu.default) and len(user.args) == 1:
            return residual, target, user, [*inner, *pending, user]
        other: Any = user.args[-1] if user.args[0] is at else user.args[0]
        is_sum = target is _aten.add.Tensor and len(user.args) == 2
        if residual is not None or not is_sum or other is at or not _is_like(other, at):
            break
        residual, last = other, user
        inner += [*pending, user]
        pending, at = [], user
    return residual, None, last, inner


def _is_like(node: Any, at: Node) -> bool:
    """Whether it lies as the result does."""
    value, result = node.meta.get("val") if isinstance(node, Node) else None, at.meta["val"]
    return (
        isinstance(value, torch.Tensor)
        and (value.shape, value.dtype) == (result.shape, result.dtype)
        and value.is_contiguous()
    )


def _is_packed(image: torch.Tensor) -> bool:
    """Whether rows lie one behind the other, with room between them or without."""
    return image.stride(1) == 1 and image.stride(0) >= image.shape[1]


def _lies(image: torch.Tensor) -> dict[str, Any]:
    apart = image.stride(0)
    if apart == image.shape[1]:
        return {}
    return {"pitch": apart, "offset": int(image.storage_offset() % apart)}
