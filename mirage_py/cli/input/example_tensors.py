"""The arguments that a torch function is traced with: from ``--input``, or from the module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from mirage_py.cli.input.options import WHOLE
from mirage_py.cli.input.user_module import call_example_inputs
from mirage_py.errors import InputError
from mirage_py.frontend.spec.source import did_you_mean
from mirage_py.ugraph.ir.dtypes import dtype

_FORM = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<dtype>[\w.]+)\[(?P<shape>[\d\s,]*)\]")
_EXAMPLE = "x=f16[16,4096]"


def parse_input(text: str) -> tuple[str, str, tuple[int, ...]]:
    """``x=f16[16,4096]`` as name, torch's name of the type, and shape. Raises InputError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise InputError(
            f"'{text}' is not an input",
            where="--input",
            why="an input is NAME=dtype[d0,d1,...]",
            repair=f"for instance {_EXAMPLE}",
        )
    axes = [axis.strip() for axis in found["shape"].split(",")] if found["shape"].strip() else []
    if not all(WHOLE.fullmatch(axis) and int(axis) > 0 for axis in axes):
        raise InputError(
            f"'[{found['shape']}]' is not a shape",
            where=f"--input {text}",
            why="every axis is a whole number of at least 1",
            repair=f"for instance {_EXAMPLE}",
        )
    try:
        kind = dtype(found["dtype"])
    except InputError as error:
        raise InputError(error.what, where=f"--input {text}", repair=error.repair) from None
    return found["name"], kind.torch_name, tuple(map(int, axes))


def example_arguments(
    function: Callable[..., Any], module: ModuleType, inputs: Sequence[str], place: str
) -> dict[str, Any]:
    """Arguments by parameter name: those of ``--input``, else of ``example_inputs()``.

    Raises InputError, with a command line that would do, where an argument is missing or unknown.
    """
    parameters = _parameters(function, place)
    if inputs:
        given = _tensors(inputs, parameters, place)
    elif callable(getattr(module, "example_inputs", None)):
        given = _from_module(call_example_inputs(module), parameters, place)
    else:
        given = {}
    missing = [
        name
        for name, parameter in parameters.items()
        if name not in given and parameter.default is inspect.Parameter.empty
    ]
    if missing:
        raise InputError(
            f"no shape for {', '.join(missing)}",
            where=place,
            why="a kernel is made for one shape and type of every argument",
            repair=" ".join(f"--input {name}=f16[16,4096]" for name in missing)
            + " (with your shapes), or define example_inputs() in the module",
        )
    return given


def _parameters(function: Callable[..., Any], place: str) -> Mapping[str, inspect.Parameter]:
    try:
        signature = inspect.signature(getattr(function, "forward", function))
    except (TypeError, ValueError):
        raise InputError(
            "Python cannot tell the parameters of this function",
            where=place,
            why="it is not written in Python",
            repair="wrap it in a function of your own: def f(x): return ...",
        ) from None
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in signature.parameters.items() if p.kind not in kinds}


def _tensors(
    inputs: Sequence[str], parameters: Mapping[str, inspect.Parameter], place: str
) -> dict[str, Any]:
    import torch

    tensors: dict[str, Any] = {}
    for text in inputs:
        name, torch_name, shape = parse_input(text)
        if name not in parameters:
            raise InputError(
                f"the function has no parameter '{name}'",
                where=place,
                why=f"its parameters are {', '.join(parameters)}",
                repair=did_you_mean(name, parameters, "name one of them"),
            )
        if name in tensors:
            raise InputError(
                f"'{name}' is given twice", where=f"--input {text}", repair="leave one out"
            )
        # Empty, as tracing reads shapes only: pages that nobody touches cost no memory.
        try:
            tensors[name] = torch.empty(shape, dtype=getattr(torch, torch_name))
        except RuntimeError as error:
            raise InputError(
                f"torch makes no tensor of this shape: {str(error).splitlines()[0]}",
                where=f"--input {text}",
                repair="use smaller sizes",
            ) from None
    return tensors


def _from_module(
    given: Any, parameters: Mapping[str, inspect.Parameter], place: str
) -> dict[str, Any]:
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in parameters]
        if not unknown:
            return dict(given)
        raise InputError(
            f"example_inputs() names {', '.join(map(str, unknown))}",
            where=place,
            why=f"the function's parameters are {', '.join(parameters)}",
            repair="use the names of the parameters",
        )
    values = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(values) > len(parameters):
        raise InputError(
            f"example_inputs() gives {len(values)} values for {len(parameters)} parameters",
            where=place,
            repair="return one value for each parameter, in order",
        )
    return dict(zip(parameters, values, strict=False))
