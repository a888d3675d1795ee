"""Recurrent layers of torch, which its decompositions write out step by step."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mirage_py.frontend.torch.lower.refusals import RECURRENT, base_name

# Of more steps, those of all layers together, a program is not made: tracing alone takes minutes.
MAX_STEPS = 64


def stays_whole(graph: torch.fx.Graph) -> Callable[[str], bool]:
    """Whether an operator is a recurrent layer that is not written out in this graph."""
    steps = {str(n.target): 0 for n in graph.nodes if base_name(str(n.target)) in RECURRENT}
    for node in graph.nodes:
        if str(node.target) in steps:
            steps[str(node.target)] += _steps(node)
    return lambda operator: steps.get(operator, 0) > MAX_STEPS


def _steps(node: torch.fx.Node) -> int:
    """Of an operator of a padded batch; one of packed sequences knows its steps by its data."""
    if not str(node.target).endswith(".input"):
        return 0
    x, layers, is_both_ways, batch_first = (node.args[n] for n in (0, 4, 7, 8))
    assert isinstance(x, torch.fx.Node)
    shape = x.meta["val"].shape
    return int(shape[bool(batch_first) and len(shape) > 2]) * int(layers) * (1 + bool(is_both_ways))  # type: ignore[call-overload]
