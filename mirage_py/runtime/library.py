"""Operators that a vendor library computes on whole tensors, as calls of torch with ``out=``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mirage_py.errors import UnsupportedError

# Operator -> name in torch; each takes ``out``.
_TORCH_NAMES: Mapping[str, str] = {
    "matmul": "matmul",
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "maximum": "maximum",
    "minimum": "minimum",
    "pow": "pow",
    "neg": "neg",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "square": "square",
    "abs": "abs",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "erf": "erf",
}


def library_function(op: str) -> Callable[..., Any]:
    """torch's function for an operator. Raises UnsupportedError."""
    import torch

    name = _TORCH_NAMES.get(op)
    if name is None:
        raise UnsupportedError(
            f"no library call for '{op}'", repair=f"use one of {', '.join(_TORCH_NAMES)}"
        )
    function: Callable[..., Any] = getattr(torch, name)
    return function
