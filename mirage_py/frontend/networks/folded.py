"""Constant folding: what a graph computes of weights alone, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.networks.operators import operator

VIEWS = ("transpose", "reshape", "expand", "slice", "split")
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def folded_weights(
    graph: Graph, weights: Mapping[Value, torch.Tensor]
) -> dict[Value, torch.Tensor]:
    """The values that something other than constants reads, of the inputs that are ``weights``;
    views of weights stay views.

    They are computed in float64 and rounded once. Where the weights lie with channels last, or
    with columns in a row of memory as the transposed weight of a linear layer does, so do they:
    products of few rows read such weights several times faster.
    """
    with torch.no_grad(), _disable_current_modes():
        return _folded(graph, weights)


def _folded(graph: Graph, weights: Mapping[Value, torch.Tensor]) -> dict[Value, torch.Tensor]:
    wide: dict[Value, torch.Tensor] = {}
    lasting: dict[Value, bool] = {v: _is_channels_last(w) for v, w in weights.items()}
    columns: dict[Value, bool] = {v: _has_columns_in_rows(w) for v, w in weights.items()}
    made: dict[Value, torch.Tensor] = {}
    views: dict[Value, bool] = dict.fromkeys(weights, True)
    for number, node in enumerate(graph.nodes):
        if not all(v in weights or v in wide for v in node.inputs):
            continue
        given = [wide[v] if v in wide else _wide(weights[v]) for v in node.inputs]
        results = operator(node.operator).over_torch(given, node.values)
        for index, (x, kind) in enumerate(zip(results, graph.types[number], strict=True)):
            value = Value(number, index)
            wide[value] = (
                x.to(getattr(torch, kind.dtype.torch_name)).to(x.dtype) if _rounds(node) else x
            )
            lasting[value] = any(lasting[v] for v in node.inputs)
            columns[value] = (
                _has_columns_in_rows(x)
                if node.operator in VIEWS
                else any(columns[v] for v in node.inputs)
            )
            views[value] = node.operator in VIEWS and all(views[v] for v in node.inputs)
    read = {
        v: None
        for n in graph.nodes
        for v in n.inputs
        if not all(i in wide or i in weights for i in n.inputs)
    }
    for value in dict.fromkeys((*read, *graph.outputs)):
        if value in wide and not views[value]:
            kind = graph.type_of(value)
            rounded = wide[value].to(getattr(torch, kind.dtype.torch_name))
            made[value] = _laid(rounded, lasting[value], columns[value])
    return made


def _rounds(node: Any) -> bool:
    return bool(node.operator == "cast")


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.double() if tensor.is_floating_point() else tensor


def _is_channels_last(tensor: torch.Tensor) -> bool:
    known = _FORMATS.get(tensor.dim())
    if known is None or tensor.is_contiguous():
        return False
    return tensor.is_contiguous(memory_format=known)


def _has_columns_in_rows(tensor: torch.Tensor) -> bool:
    """Whether the elements of each column of its matrices follow each other in memory."""
    return tensor.dim() > 1 and tensor.mT.is_contiguous() and not tensor.is_contiguous()


def _laid(tensor: torch.Tensor, last: bool, columns: bool) -> torch.Tensor:
    known = _FORMATS.get(tensor.dim()) if last else None
    if known is None and columns and tensor.dim() > 1:
        return tensor.mT.contiguous().mT
    return tensor.contiguous(memory_format=known or torch.contiguous_format)
