"""GPU memory that a problem needs while its row is measured, without computing it.

In the process of the row there are three models (eager, ours, torch.compile's) and the inputs as
they were made, in the warm-up of baselines, in the timing and in a check. In its check worker there
are the inputs as given, as timed and as they were before a launch, and two results. Where a
reference is computed in float64 on the GPU, inputs and the values of an operation are there once
more in eight bytes each; of elementwise operations alone the host computes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.kernelbench.problem import Problem, load

_MODELS, _INPUTS, _RESULTS = 4, 5, 2
_GIVEN_THERE, _RESULTS_THERE = 3, 2
# Of an operation in float64: its values and those that a later one reads.
_STEPS_IN_FLOAT64 = 2


@dataclass(frozen=True, slots=True)
class Footprint:
    """Numbers of elements: of parameters, inputs and results, and of what the largest operation
    reads and writes.
    """

    parameters: int
    inputs: int
    results: int
    step: int
    is_pointwise: bool

    def bytes(self, itemsize: int) -> int:
        """What the row takes with elements of a size."""
        given = self.parameters + self.inputs
        here = _MODELS * self.parameters + _INPUTS * self.inputs + _RESULTS * self.results
        there = _GIVEN_THERE * given + _RESULTS_THERE * self.results + self.step
        wide = 0 if self.is_pointwise else 8 * (given + _STEPS_IN_FLOAT64 * self.step)
        return itemsize * here + max(itemsize * there, wide)


class _Steps(TorchDispatchMode):
    """Watches operations: the most elements that one reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self.is_pointwise = 0, True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The operation, and what it took."""
        del types
        given = dict(kwargs or {})
        found = func(*args, **given)
        tensors = {id(x): x.numel() for x in _tensors((args, given, found))}
        self.most = max(self.most, sum(tensors.values()))
        if torch.Tag.pointwise not in func.tags and not func.is_view:
            self.is_pointwise = False
        return found


def footprint_of(problem: Problem) -> Footprint:
    """That of a problem, none of whose tensors is filled."""
    # Some models read numbers of tensors while they are made, which fake tensors do not have.
    model, inputs = load(problem, filled=False)
    parameters = sum(x.numel() for x in (*model.parameters(), *model.buffers()))
    given = sum(x.numel() for x in _tensors(inputs))
    # Some cannot be computed without data: their results are about as large as their inputs.
    results, steps = given, _Steps()
    with FakeTensorMode(allow_non_fake_inputs=True), steps, contextlib.suppress(Exception):
        results = sum(x.numel() for x in _tensors(_call(model, inputs)))
    step = max(steps.most, given + results)
    return Footprint(parameters, given, results, step, steps.is_pointwise)


def _call(model: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    with torch.no_grad():
        return model(*inputs)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]
