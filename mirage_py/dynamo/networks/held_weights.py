"""A cheap check for whether a graph holds its weights, without importing search or front end."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule


def is_wanted(module: GraphModule, effort: str) -> bool:
    """Whether a graph of torch.compile is to be rewritten: with ``auto`` if it holds weights, as
    freezing leaves it; what is made of weights that may change is made at each call.
    """
    held = [n for n in module.graph.nodes if n.op == "get_attr" and n.users]
    values = [_attribute(module, str(n.target)) for n in held]
    return effort == "full" or any(isinstance(v, torch.Tensor) and v.dim() > 1 for v in values)


def _attribute(module: GraphModule, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
