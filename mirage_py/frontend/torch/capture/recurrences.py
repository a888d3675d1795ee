"""Recurrent layers of torch, which its decompositions write out step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import is_tensor
from torch.overrides import TorchFunctionMode

# Of more steps, those of all layers together, a program is not made: tracing alone takes minutes.
MAX_STEPS = 64
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
TOO_LONG = "its steps, one after the other, are too many to be written out"
REPAIR = "leave the layer to torch, outside the function"
# The last argument of each of them.
_BATCH_FIRST = 8
_OPERATORS = tuple(f"aten.{layer}.input" for layer in RECURRENT)


class TooManyStepsError(Exception):
    """A recurrent layer, ``operator``, whose steps are too many to be written out."""

    def __init__(self, operator: str) -> None:
        super().__init__(f"{operator}: {TOO_LONG}")
        self.operator = operator


class RecurrentLayers(TorchFunctionMode):
    """While active, a layer that would stay whole raises TooManyStepsError, before torch runs its
    steps on tensors without data in each pass of a trace.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts = dict.fromkeys(RECURRENT, 0)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Counts the steps of recurrent layers of tensors that are not packed."""
        del types
        name = getattr(func, "__name__", "")
        if name in self._counts and len(args) > _BATCH_FIRST and not is_tensor(args[2]):
            self._counts[name] += _count(args[0].shape, args)
            if self._counts[name] > MAX_STEPS:
                raise TooManyStepsError(f"aten.{name}.input")
        return func(*args, **(kwargs or {}))


def stays_whole(graph: torch.fx.Graph) -> Callable[[str], bool]:
    """Whether an operator is a recurrent layer that is not written out in this graph."""
    steps = dict.fromkeys(_OPERATORS, 0)
    for node in graph.nodes:
        if str(node.target) in steps:
            steps[str(node.target)] += _steps(node)
    return lambda operator: steps.get(operator, 0) > MAX_STEPS


def _steps(node: torch.fx.Node) -> int:
    x = node.args[0]
    assert isinstance(x, torch.fx.Node)
    return _count(x.meta["val"].shape, node.args)


def _count(shape: Sequence[int], args: Sequence[Any]) -> int:
    layers, is_both_ways, batch_first = (args[n] for n in (4, 7, _BATCH_FIRST))
    steps = int(shape[1 if batch_first and len(shape) > 2 else 0])
    return steps * int(layers) * (2 if is_both_ways else 1)
