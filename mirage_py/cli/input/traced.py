"""A torch function as a program, and the function itself as the baseline to beat."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mirage_py.frontend.decorator import SuperoptimizedFunction
from mirage_py.frontend.torch import TracedCall, trace_call
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.ugraph.ir.program import Program


def trace_source(
    function: Callable[..., Any], given: Mapping[str, Any], name: str
) -> tuple[Program, dict[str, Callable[..., Any]]]:
    """The program of a function traced on arguments by name, and its baselines.

    The function is the eager baseline, unless it reads tensors that are no arguments: those are
    inputs of the program, and a call cannot set them. Raises UnsupportedError.
    """
    if isinstance(function, SuperoptimizedFunction):
        function = function.__wrapped__
    signature = Signature.of(function)
    assert signature.parameters is not None  # or no argument could have been given by name
    bound = inspect.BoundArguments(signature.parameters, OrderedDict(given))
    bound.apply_defaults()
    arguments = bound.arguments
    with torch.no_grad():
        traced = trace_call(signature, arguments, name=name)
    if traced.captured:
        return traced.program, {}
    return traced.program, {"eager": _of_inputs(traced, signature, arguments)}


def _of_inputs(
    traced: TracedCall, signature: Signature, arguments: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function, called with the program's inputs and returning the program's outputs."""
    leaves, structure = pytree.tree_flatten(dict(arguments))

    def eager(*tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        # Arguments that only give their shape or type are no inputs: they follow to the same GPU.
        device = tensors[0].device
        values = [v.to(device) if isinstance(v, torch.Tensor) else v for v in leaves]
        for place, tensor in zip(traced.arguments, tensors, strict=True):
            values[place] = tensor
        outputs = traced.outputs_of(
            lambda: signature.call(pytree.tree_unflatten(values, structure)), values
        )
        return outputs[0] if len(outputs) == 1 else outputs

    return eager
