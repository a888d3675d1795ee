"""Recurrent layers of torch, which its decompositions write out step by step."""

from __future__ import annotations

from collections.abc import Callable

import torch

# Of more steps, those of all layers together, a program is not made: tracing alone takes minutes.
MAX_STEPS = 64
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_OPERATORS = tuple(f"aten.{layer}.input" for layer in RECURRENT)


def stays_whole(graph: torch.fx.Graph) -> Callable[[str], bool]:
    """Whether an operator is a recurrent layer that is not written out in this graph."""
    steps = dict.fromkeys(_OPERATORS, 0)
    for node in graph.nodes:
        if str(node.target) in steps:
            steps[str(node.target)] += _steps(node)
    return lambda operator: steps.get(operator, 0) > MAX_STEPS


def _steps(node: torch.fx.Node) -> int:
    x, layers, is_both_ways, batch_first = (node.args[n] for n in (0, 4, 7, 8))
    assert isinstance(x, torch.fx.Node)
    assert isinstance(layers, int)
    shape = x.meta["val"].shape
    steps = int(shape[1 if batch_first and len(shape) > 2 else 0])
    return steps * layers * (2 if is_both_ways else 1)
