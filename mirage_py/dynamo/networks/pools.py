"""Pools of an ATen graph that kernels over windows can be: maxima, and means of all taps."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mirage_py.search.networks.convolutions.window_tiles import is_over_windows
from mirage_py.ugraph.ir.convolution import FusedConvolution

_aten = torch.ops.aten
_TYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}
# Operators by the axes that their windows slide along.
_LARGEST: dict[Any, int] = {
    _aten.max_pool2d_with_indices.default: 2, _aten.max_pool2d.default: 2,
    _aten.max_pool3d_with_indices.default: 3, _aten.max_pool3d.default: 3,
}  # fmt: skip
_MEANS: dict[Any, int] = {_aten.avg_pool2d.default: 2, _aten.avg_pool3d.default: 3}


@dataclass(frozen=True)
class Pool:
    """A pool with nothing around it; ``result`` is the node of its values."""

    spec: FusedConvolution
    image: Node
    result: Node


def pools(module: GraphModule) -> Iterator[Pool]:
    """The pools of a graph, in order."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in (_LARGEST.keys() | _MEANS.keys()):
            found = _pool(node)
            if found is not None:
                yield found


def _pool(node: Node) -> Pool | None:
    result = node
    if isinstance(node.meta["val"], tuple | list):
        # Positions of the largest elements are nothing that kernels make.
        users: list[Any] = [user for user in node.users if user.users]
        if len(users) != 1 or users[0].target is not operator.getitem or users[0].args[1] != 0:
            return None
        (result,) = users
    arguments: list[Any] = list(node.args)
    if node.kwargs:
        return None
    image, kernel, *rest = arguments
    x = image.meta["val"]
    rank = _LARGEST.get(node.target, 0) or _MEANS[node.target]
    is_mean = node.target in _MEANS
    defaults: list[Any] = [[], 0, False, True, None] if is_mean else [[], 0, 1, False]
    stride, padding, *other = [*rest, *defaults[len(rest) :]]
    if x.dim() != rank + 2 or x.dtype not in _TYPES:
        return None
    sliding = [_each(n, rank) for n in (stride or kernel, padding, 1 if is_mean else other[0])]
    channels = x.shape[1]
    weight = (channels, 1, *_each(kernel, rank))
    bare = FusedConvolution.of(tuple(x.shape), weight, sliding, channels, _TYPES[x.dtype])
    spec = replace(bare, pool="mean" if is_mean else "max")
    if is_mean:
        _, counts_padding, divisor = other
        # What ceil has behind the padding never counts: it is not taken, as shapes say below.
        if divisor is not None or (not counts_padding and any(sliding[1])):
            return None
    if spec.result_shape != tuple(result.meta["val"].shape) or not is_over_windows(spec):
        return None
    return Pool(spec, image, result)


def _each(values: Any, rank: int) -> tuple[int, ...]:
    """A number for each axis, where one may stand for all."""
    given = (values,) if isinstance(values, int) else tuple(map(int, values))
    return given * rank if len(given) == 1 else given
