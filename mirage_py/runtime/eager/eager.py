"""The program in eager PyTorch: the baseline where only a spec is given, and the fallback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirage_py.runtime.base.modules import load_module
from mirage_py.runtime.eager.eager_source import eager_source
from mirage_py.ugraph.ir.program import Program


def torch_function(program: Program) -> Callable[..., Any]:
    """A function of the inputs in order that returns the output, or a tuple of several.

    It runs on any device and is differentiable and traceable; the source is ``eager_source``'s.
    Raises UnsupportedError for an operator that has no PyTorch form.
    """
    function: Callable[..., Any] = load_module(eager_source(program), "eager").run
    return function
