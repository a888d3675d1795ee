"""The arguments of a call by name, so that a call is the same however it was spelled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function takes its arguments; ``parameters`` is None where Python cannot tell."""

    fn: Callable[..., Any]
    parameters: inspect.Signature | None

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Signature:
        """The signature of a function, or of a module's forward."""
        try:
            return cls(fn, inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn))
        except (TypeError, ValueError):  # functions written in C
            return cls(fn, None)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Every argument by its parameter's name, defaults included; TypeError as in a call."""
        if self.parameters is None:
            return {"args": args, "kwargs": dict(kwargs)}
        bound = self.parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """The function called with arguments as ``bind`` gave them."""
        if self.parameters is None:
            return self.fn(*arguments["args"], **arguments["kwargs"])
        bound = inspect.BoundArguments(self.parameters, dict(arguments))
        return self.fn(*bound.args, **bound.kwargs)


def runs_later(fn: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine or a generator, which nothing has been computed of."""
    return (
        inspect.iscoroutinefunction(fn)
        or inspect.isgeneratorfunction(fn)
        or inspect.isasyncgenfunction(fn)
    )
