"""A torch function as a program, and the function itself as the baseline to beat."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mirage_py.frontend.decorator import SuperoptimizedFunction
from mirage_py.frontend.torch import TracedCall
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.reference import reference_of
from mirage_py.frontend.torch.trace import trace_given
from mirage_py.ugraph.ir.program import Program


def trace_source(
    function: Callable[..., Any], given: Mapping[str, Any], name: str
) -> tuple[Program, dict[str, Callable[..., Any]]]:
    """The program of a function traced on arguments by name, and its baselines.

    The function is the eager baseline, unless it reads tensors that are no arguments: those are
    inputs of the program, and a call cannot set them. Raises UnsupportedError, and InputError where
    the function itself fails.
    """
    if isinstance(function, SuperoptimizedFunction):
        function = function.__wrapped__
    signature = Signature.of(function)
    assert signature.parameters is not None  # or no argument could have been given by name
    bound = inspect.BoundArguments(signature.parameters, OrderedDict(given))
    bound.apply_defaults()
    arguments = bound.arguments
    with torch.no_grad():
        traced = trace_given(signature, arguments, name=name)
    if traced.captured:
        return traced.program, {}
    return traced.program, {"eager": _of_inputs(traced, signature, arguments)}


def _of_inputs(
    traced: TracedCall, signature: Signature, arguments: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function, called with the program's inputs and returning the program's outputs."""
    leaves, structure = pytree.tree_flatten(dict(arguments))
    return reference_of(
        traced, leaves, lambda values: signature.call(pytree.tree_unflatten(values, structure))
    )


def text_of(function: Callable[..., Any]) -> str:
    """Its source, where Python has it."""
    try:
        return inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return ""
